"""What finished runs say together: tables, intervals, tests."""

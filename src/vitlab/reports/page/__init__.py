"""Write finished runs as one HTML page that needs no network: charts, pictures, tables."""

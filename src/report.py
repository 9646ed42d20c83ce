"""Write a report of finished runs as one HTML page: python src/report.py runs=[A,B], or sweep=NAME."""

from vitlab.commands import command

main = command("report")

if __name__ == "__main__":
    main()

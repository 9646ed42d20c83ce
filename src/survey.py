"""What a data set holds, and what is wrong with it: python src/survey.py data=folder data.source.root=DIR."""

from vitlab.commands import command

main = command("survey")

if __name__ == "__main__":
    main()

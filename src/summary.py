"""What a model costs, before it runs: python src/summary.py [model=vit_b16] [data=cifar10] [memory_gib=80]."""

from vitlab.commands import command

main = command("summary")

if __name__ == "__main__":
    main()

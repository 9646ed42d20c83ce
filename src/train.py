"""Train a model: python src/train.py [model=vit_b16] [data=cifar10] [trainer.max_epochs=5] [-m for a sweep]."""

from vitlab.commands import command

main = command("train")

if __name__ == "__main__":
    main()

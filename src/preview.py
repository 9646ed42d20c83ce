"""A training batch as a picture: python src/preview.py [data=cifar10] [augmentation=randaugment] [same=4]."""

from vitlab.commands import command

main = command("preview")

if __name__ == "__main__":
    main()

"""torchrun that ends with whoever started it: by itself it would go on, with all of its processes.

python -P -m trainlab.watching.scripts.torchrun …
"""

from trainlab.watching.scripts.parent import end_with_starter, name_as_starter

if __name__ == "__main__":
    end_with_starter()
    name_as_starter()

    from torch.distributed.run import main

    main()

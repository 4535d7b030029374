"""How cases are written down."""


def of(config_class, run, classes, **more):
    """Cases of several published classes: dict of name to case."""
    return {
        name: {"config_class": config_class, "run": run, "class": kind, "config": config, **more}
        for name, (kind, config) in classes.items()
    }

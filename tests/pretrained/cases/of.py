"""How cases are written down."""


def of_spans(config):
    """Of a model that answers questions, which has two logits, whatever it says of classes."""
    return {key: value for key, value in config.items() if key != "num_labels"}


def of(config_class, run, classes, **more):
    """Cases of several published classes: dict of name to case."""
    return {
        name: {"config_class": config_class, "run": run, "class": kind, "config": config, **more}
        for name, (kind, config) in classes.items()
    }

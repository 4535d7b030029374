"""A shard of rows as JSON lines."""

from keras_transformers.predictors import Refused

from .shards import record


def answered(predictor, rows):
    """JSON lines, bytes, one for each of a list of `Row`s.

    Texts are one request, whose rows the exported program sorts by length itself.
    """
    good = [row.content for row in rows if not isinstance(row.content, Refused)]
    # Of a detector's answers only the sure ones are wanted.
    answers = predictor.each(good, details=predictor.kind != "detector")
    lines = []
    for row in rows:
        answer = row.content if isinstance(row.content, Refused) else next(answers)
        lines.append(record(predictor.kind, row, answer))
    return b"".join(lines)

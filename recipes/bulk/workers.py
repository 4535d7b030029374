"""Shards answered by several processes, of this machine or of a cluster, through Ray Data.

Ray Data hands each shard to a worker that has the model, and hands it out again when the worker is
lost. By itself it promises no more than that every shard is answered at least once, and gives them
in any order. So its answers are written as files named by their shard, each at once: one that
comes a second time takes the place of the first, and rows are neither lost nor doubled.
"""

import contextlib
import itertools
import logging
import os
import pathlib
import pickle
import warnings

WINDOW = 1024  # shards that are with Ray at once: the memory that a long input takes
TRIES = 4  # of a shard whose worker is lost; more often than that, it is the shard's fault


class Worker:
    """A model in a process of its own, which Ray Data calls with one shard at a time.

    Args:
        asked: Arguments of `answers.loaded`, a tuple.
        threads: For TensorFlow.
    """

    def __init__(self, asked, threads):
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        from .answers import loaded

        self._predictor = loaded(*asked)

    def __call__(self, batch):
        from .answers import answered

        lines = [answered(self._predictor, pickle.loads(rows)) for rows in batch["rows"]]
        return {"shard": batch["shard"], "lines": lines}


def answers(shards, config):
    """Pairs of number and JSON lines of shards, in the order in which workers end them.

    Args:
        shards: Iterable of pairs of number and list of `Row`s.
        config: A `job.Asking`.

    Raises:
        ValueError: If Ray is not installed, or workers are lost again and again.
    """
    ray = _ray()
    folder, *options = config.asked
    asked = str(pathlib.Path(folder).absolute()), *options  # a worker may be at work in another
    cpus = config.worker_cpus
    if cpus is None:  # cores of this machine are shared out; of a cluster's, each has one
        cpus = 1 if config.address else max((os.cpu_count() or 1) // config.workers, 1)
    with _cluster(ray, config, cpus):
        shards = iter(shards)
        while window := list(itertools.islice(shards, WINDOW)):
            items = [{"shard": number, "rows": pickle.dumps(rows)} for number, rows in window]
            dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
                Worker,
                fn_constructor_args=(asked, cpus),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=min(config.workers, len(items))),
                num_cpus=cpus,
                num_gpus=config.worker_gpus or None,
                max_restarts=-1,
                max_task_retries=TRIES,
            )
            try:
                for row in dataset.iter_rows():
                    yield int(row["shard"]), row["lines"]
            except ray.exceptions.RayError as error:
                why = str(error).strip().splitlines()[-1]
                raise ValueError(f"The workers cannot go on: {why}") from error


def _ray():
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray's core logs an error for every actor that may restart and has arguments, as Ray Data's
    # have. A lost worker raises an exception, which is reported.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ValueError(
            f"--workers needs Ray Data: pip install 'keras_transformers[ray]' ({error})."
        ) from None
    return ray


@contextlib.contextmanager
def _cluster(ray, config, cpus):
    """Ray, on this machine alone or as a client of a cluster, and without its progress bars."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if config.address:
        ray.init(config.address, **quiet)
    else:
        ray.init(
            "local",
            num_cpus=cpus * config.workers,
            include_dashboard=False,
            object_store_memory=1 << 28,
            **quiet,
        )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # What says how often a shard is tried; without it, one that ends every worker would be
            # tried for ever.
            warnings.filterwarnings("ignore", ".*ray_remote_args. is deprecated")
            yield
    finally:
        ray.shutdown()

"""Claims about the folder of a run."""

import json
import threading

from recipes.command import RunConfig
from recipes.folder import RunFolder


def test_a_file_that_is_written_anew_can_be_read_all_the_time(tmp_path):
    """As one host reads the numbers of a run while the first writes them."""
    folder = RunFolder(tmp_path, RunConfig())
    writer = threading.Thread(
        target=lambda: [folder.write_json("config.json", {"i": i}) for i in range(300)]
    )
    writer.start()
    while writer.is_alive():
        json.loads((tmp_path / "config.json").read_text())
    assert json.loads((tmp_path / "config.json").read_text()) == {"i": 299}
    assert not list(tmp_path.glob("unfinished-*"))

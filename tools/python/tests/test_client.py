"""Hazards: an endpoint that is absent, dead, mute or refuses is taken for one that answered."""

import json
import os
import socket
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

import wmshim
from wmshim import _client


class Endpoint:
    """A socket of a process, with one answer for all requests; None closes without one."""

    def __init__(self, directory, pid, answer):
        self.requests = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(directory) / f"{pid}.sock"))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        client, _ = self._listener.accept()
        with client:
            self.requests.append(client.makefile("rb").readline())
            if self._answer is not None:
                client.sendall(self._answer)

    def close(self):
        self._thread.join(10)
        self._listener.close()


class ClientTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name
        environment = mock.patch.dict(os.environ, {"WMSHIM_STATS_DIR": self.directory})
        environment.start()
        self.addCleanup(environment.stop)

    def serve(self, pid, answer):
        endpoint = Endpoint(self.directory, pid, answer)
        self.addCleanup(endpoint.close)
        return endpoint

    def test_the_answer_is_what_the_process_sent(self):
        expected = {"schema": "wmshim-stats/1", "devices": [{"ordinal": 0}]}
        endpoint = self.serve(41, json.dumps(expected).encode() + b"\n")
        self.assertEqual(wmshim.stats(41), expected)
        self.assertEqual([json.loads(line) for line in endpoint.requests], [{"request": "stats"}])

    def test_without_a_number_it_is_this_process(self):
        self.serve(os.getpid(), b'{"pid": 1}\n')
        self.assertEqual(wmshim.stats(), {"pid": 1})

    def test_a_large_answer_arrives_whole(self):
        blocks = ["0x7f0000000000"] * 100_000
        self.serve(41, json.dumps(blocks).encode() + b"\n")
        self.assertEqual(wmshim.ask("blocks", 41), blocks)

    def test_an_error_is_raised_with_its_sentence(self):
        self.serve(41, b'{"error": "unknown request", "valid": ["stats"]}\n')
        with self.assertRaisesRegex(wmshim.Unavailable, "process 41 answered: unknown request"):
            wmshim.ask("nonsense", 41)

    def test_no_socket_names_the_places_and_the_remedy(self):
        with self.assertRaisesRegex(wmshim.Unavailable, f"{self.directory}.*wmshim-run COMMAND"):
            wmshim.stats(41)

    def test_a_socket_of_the_dead_is_told(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(Path(self.directory) / "41.sock"))
        listener.close()
        with self.assertRaisesRegex(wmshim.Unavailable, "left over from a process that ended"):
            wmshim.stats(41)

    def test_a_process_that_ends_meanwhile_is_told(self):
        self.serve(41, None)
        with self.assertRaisesRegex(wmshim.Unavailable, "ended while it answered"):
            wmshim.stats(41)

    def test_silence_is_not_waited_out_for_ever(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(Path(self.directory) / "41.sock"))
        listener.listen()
        with mock.patch.object(_client, "PATIENCE_S", 0.05), self.assertRaisesRegex(wmshim.Unavailable, "timed out"):
            wmshim.stats(41)


if __name__ == "__main__":
    unittest.main()

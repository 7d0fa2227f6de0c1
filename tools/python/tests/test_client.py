"""Hazards: an endpoint that is absent, dead, mute or refuses is taken for one that answered; one that a stranger made is believed;
one that trickles or floods is waited for or kept."""

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
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
        expected = {"schema": "wmshim-stats/2", "devices": [{"ordinal": 0}]}
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

    def test_one_deadline_holds_for_the_whole_answer(self):
        def trickle(client):
            while True:
                client.sendall(b" ")
                time.sleep(0.02)

        self.attack(41, trickle)
        begin = time.monotonic()
        with mock.patch.object(_client, "PATIENCE_S", 0.5), self.assertRaisesRegex(wmshim.Unavailable, "timed out"):
            wmshim.stats(41)
        self.assertLess(time.monotonic() - begin, 30)

    def test_an_answer_without_end_is_not_kept(self):
        def flood(client):
            while True:
                client.sendall(b"x" * (1 << 16))

        self.attack(41, flood)
        with mock.patch.object(_client, "PATIENCE_S", 60), self.assertRaisesRegex(wmshim.Unavailable, "longer than 8 MiB"):
            wmshim.stats(41)

    def test_a_folder_that_a_stranger_can_write_is_not_looked_into(self):
        self.serve(41, b"{}\n")
        os.chmod(self.directory, 0o777)
        with self.assertRaisesRegex(wmshim.Unavailable, "can be written by others and was not looked into"):
            wmshim.stats(41)
        os.chmod(self.directory, 0o700)
        self.assertEqual(wmshim.stats(41), {})

    def test_a_folder_of_another_user_is_not_looked_into(self):
        self.serve(41, b"{}\n")
        with mock.patch.object(os, "geteuid", return_value=os.geteuid() + 1):
            with self.assertRaisesRegex(wmshim.Unavailable, "belongs to user .* and was not looked into"):
                wmshim.stats(41)
        self.assertEqual(wmshim.stats(41), {})

    def test_a_stranger_who_listens_is_not_asked(self):
        endpoint = self.serve(41, b"{}\n")
        with mock.patch.object(_client, "_peer", return_value=65431):
            with self.assertRaisesRegex(wmshim.Unavailable, "user 65431 listens at .* it was not asked"):
                wmshim.stats(41)
        endpoint.close()
        self.assertEqual(endpoint.requests, [b""])

    def test_a_link_is_not_followed(self):
        with tempfile.TemporaryDirectory() as scratch:
            link = Path(scratch) / "link"
            link.symlink_to(self.directory)
            with mock.patch.dict(os.environ, {"WMSHIM_STATS_DIR": str(link)}):
                with self.assertRaisesRegex(wmshim.Unavailable, "is a symbolic link"):
                    wmshim.stats(41)

    def test_control_characters_of_an_error_are_written_out(self):
        self.serve(41, b'{"error": "\\u001b[2Jgone"}\n')
        with self.assertRaisesRegex(wmshim.Unavailable, r"answered: \\x1b\[2Jgone"):
            wmshim.stats(41)

    def test_what_is_no_process_is_called_so(self):
        for wrong, kind in (("x", TypeError), (True, TypeError), (1.5, TypeError), (-1, ValueError), (0, ValueError)):
            with self.assertRaises(kind):
                wmshim.stats(wrong)

    def attack(self, pid, serve):
        """A socket of a process that does this with its first client, until that has gone."""
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(Path(self.directory) / f"{pid}.sock"))
        listener.listen()

        def run():
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                serve(client)

        threading.Thread(target=run, daemon=True).start()


if __name__ == "__main__":
    unittest.main()

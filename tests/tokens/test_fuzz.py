"""Random messages of two processes do an honest one no harm."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.tokens.files.grants import read_grant
from kubeshare.tokens.files.run_folder import GrantError
from kubeshare.tokens.wire.protocol import MESSAGE, Message, MessageError, MessageType
from tokens.conversation import STEPS_MAX, Step, converse, steps_of

# What one says: which of two processes, a message (its epoch from the page's present one),
# or anything at all; and how long it is until the next.
messages = st.tuples(
    st.sampled_from([*MessageType, MessageType.WANT, MessageType.DRAINED]),
    st.integers(0, 3),
    st.integers(-2, 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1) | st.integers(0, 3),
)
steps = st.tuples(st.integers(0, 1), messages | st.binary(max_size=40), st.integers(0, 150_000_000))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=STEPS_MAX))
def test_whatever_a_process_says_nobody_else_loses_a_turn(conversation: list[Step]) -> None:
    converse(conversation)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_stand_for_a_conversation(data: bytes) -> None:
    """So a guided fuzzer (`python -m robustness.fuzz.guided`) has a use for each of them."""
    converse(steps_of(data))


@settings(deadline=None)
@given(st.binary(max_size=2 * MESSAGE.size))
def test_any_datagram_is_a_message_or_an_error_of_the_protocol(data: bytes) -> None:
    try:
        message = Message.unpack(data)
    except MessageError:
        return
    assert message.pack() == data


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=400) | st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_any_grant_file_is_a_grant_or_an_error_for_people(content: object) -> None:
    data = content if isinstance(content, bytes) else json.dumps({"gpus": content}).encode()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder) / "a.json"
        file.write_bytes(data)

        with pytest.raises(GrantError, match=r"a\.json"):
            read_grant(file)

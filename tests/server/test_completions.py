"""Text completions: one prompt as text or tokens, continued without a template."""

import pytest

from asking import COMPLETIONS


@pytest.fixture
def ask(client, session):
    def ask(**fields):
        reply = client.post(COMPLETIONS, {"prompt": "Once upon", **fields})
        assert reply.status_code == 200, reply.text
        return session.requests[-1], reply.json()

    return ask


def test_the_prompt_is_text_or_tokens_alone_or_in_a_list(ask, session):
    tokens = session.tokenizer.encode("Once upon")
    requests = [ask(prompt=prompt)[0] for prompt in ("Once upon", ["Once upon"], tokens, [tokens])]
    assert {request.prompt.tokens for request in requests} == {tuple(tokens)}
    assert all(request.text.raw for request in requests)


def test_tags_are_plain_text(ask, session):
    session.text = "a</think>\n<tool_call>x</tool_call>"
    assert ask()[1]["choices"][0]["text"] == session.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "the end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"n": 2}, "n"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"grammar": "root ::= x"}, "grammar"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(client, fields, param):
    reply = client.post(COMPLETIONS, {"prompt": "Once", **fields})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == param


@pytest.mark.parametrize("prompt", ["", "   "])
def test_an_empty_prompt_is_refused(client, prompt):
    reply = client.post(COMPLETIONS, {"prompt": prompt})
    assert reply.status_code == 400 and "empty" in reply.json()["error"]["message"]


def test_fields_that_ask_for_nothing_are_fine(ask):
    ask(echo=False, suffix="", best_of=1, n=1, logprobs=None, stop=None, max_tokens=None)


def test_a_bound_on_tokens_and_a_stop_string_end_it(ask, session):
    session.text = "one two three"
    assert ask(max_tokens=1)[1]["choices"][0]["finish_reason"] == "length"
    choice = ask(stop=" two")[1]["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("one", "stop")

"""A laugh stops the agent on the Realtime wire: a standard client gets the rest as another response."""

from pathlib import Path

from support.serving import Talk, serving

STORY = "It is sunny today. Take a hat, if you go out. There is some wind at noon, and it is cold at night."


def test_a_standard_client_receives_the_rest_of_the_reply(tmp_path: Path) -> None:
    models = {"stt": "scripted:stt|what is the weather|(laughs)", "llm": f"scripted:llm|{STORY}|Fine."}
    with serving(tmp_path, **models) as server, Talk(server) as talk:
        talk.speak()
        for _ in range(40):
            talk.until("response.output_audio.delta")
        talk.speak(1.4, pause=2.0)
        talk.until("input_audio_buffer.speech_started")
        cut = talk.until("response.done")["response"]
        assert cut["status"] == "cancelled"
        item = cut["output"][0]["id"]
        talk.send("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=1000)
        talk.until("conversation.item.truncated")
        rest = talk.until("response.done")["response"]
        assert rest["status"] == "completed"
        said = rest["output"][0]["content"][0]["transcript"]
        assert STORY.endswith(said) and said != STORY
        talk.send("conversation.item.retrieve", item_id=item)
        heard = talk.until("conversation.item.retrieved")["item"]["content"][0]["transcript"]
        assert f"{heard} {said}" == STORY

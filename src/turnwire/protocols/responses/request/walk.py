"""Items, walked once into messages.

Promise: the order is the client's. Items of the assistant's side (reasoning, calls, messages) in a row are one
assistant turn with its blocks in that order; tool outputs in a row are one user message. An output whose call is
nowhere in the conversation is refused in the vendor's words.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnwire.protocols.fields.body import rebased
from turnwire.protocols.fields.decoded import PartNote, first_cases
from turnwire.protocols.responses.request.items import DecodedItem
from turnwire.protocols.responses.tools import Toolbox
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Block, Message, ReasoningBlock, TextBlock, ToolResultBlock

__all__ = ["ItemWalk"]


_UNANSWERED = PartNote("item.opaque", "", "a hosted call without its answer is not shown to the model", "unanswered")


class ItemWalk:
    """Walks items into `messages`, and the tools that they bring into `toolbox`. `notes` are those on the items;
    `unfinished` is whether a thought at their end was left out. References were resolved before; one that is still
    there has no item."""

    def __init__(self, toolbox: Toolbox) -> None:
        self.messages: list[Message] = []
        self.notes: dict[tuple[str, str], PartNote] = {}
        self.toolbox = toolbox
        self.compaction_requested = False
        self.unfinished = False
        self._assistant: list[Block] = []
        self._results: list[Block] = []
        self._call_names: dict[str, str] = {}
        self._unanswerable: dict[str, str] = {}
        self._lost_items = False
        # Where calls of the present turn belong that a gateway ran, and the answers of those that are known.
        self._places: list[int] = []
        self._hosted: list[Block] = []

    def copy(self) -> ItemWalk:
        """The same walk, to go on with; the tools are in a box of its own."""
        other = ItemWalk(self.toolbox.copy())
        other.messages = [*self.messages]
        other.notes = {**self.notes}
        other.compaction_requested = self.compaction_requested
        other._assistant = [*self._assistant]
        other._results = [*self._results]
        other._call_names = {**self._call_names}
        other._unanswerable = {**self._unanswerable}
        other._lost_items = self._lost_items
        other._places = [*self._places]
        other._hosted = [*self._hosted]
        return other

    def walk(self, items: Iterable[DecodedItem], path: str, first: int = 0) -> None:
        """Take in items in order, the first of which has this place. May be called several times (earlier turns
        first); `close` ends the walk."""
        for index, item in enumerate(items, first):
            if item.notes:
                self.notes = first_cases(self.notes, f"{path}[{index}]", item.notes)
            match item.place:
                case "assistant":
                    if item.call_id:
                        self._call_names.setdefault(item.key, "")
                    if item.blocks and (self._hosted or self._results):
                        self._end_round()
                        self._end_results()
                    self._assistant += item.blocks
                case "message":
                    if self._assistant or self._hosted or self._places:
                        self._end_assistant()
                    if self._results:
                        self._end_results()
                    self.messages.append(item.message or item.alone())
                case "hosted":
                    self._ran(item)
                case "bare":
                    self._end_round()
                    self._end_results()
                    self._places.append(len(self._assistant))
                case "call":
                    shown = self.toolbox.name_of(item.name, item.namespace)
                    self._call_names[item.key] = shown
                    self._say(item.call(shown))
                case "result":
                    self._answer(item)
                case "loaded_tools":
                    self._loaded(item, f"{path}[{index}]")
                case "tools":
                    self._add_tools(item, f"{path}[{index}]", deferred=False)
                case "trigger":
                    self.compaction_requested = True
                case "reference":
                    self._lost_items = True

    def close(self) -> tuple[Message, ...]:
        """The messages of the whole walk."""
        self._end_assistant()
        self._end_results()
        self._refuse_orphans()

        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "assistant" and all(isinstance(b, ReasoningBlock) for b in last.blocks):
            # A client whose stream broke sends the thought that it had received and asks again: without it the
            # prompt is the one that was asked before, and the engine's cache still holds it.
            self.messages.pop()
            self.unfinished = True
        return tuple(self.messages)

    def _refuse_orphans(self) -> None:
        if self._lost_items:
            # The call may be in the item that is no longer there, which is noted already.
            return
        for key, call_id in self._unanswerable.items():
            if key not in self._call_names:
                raise TurnFailure(
                    "invalid_request",
                    f"No tool call found for function call output with call_id {call_id[:128]}.",
                    param="input",
                )

    # ------------------------------------------------------------------------------------------------- the turns

    def _say(self, block: Block) -> None:
        if self._hosted:
            self._end_round()
        if self._results:
            self._end_results()
        self._assistant.append(block)

    def _ran(self, item: DecodedItem) -> None:
        """A call that a gateway ran, with its answer: the call goes to its place in the turn, and the answers of a
        turn's calls follow it together."""
        assert item.hosted is not None
        self._call_names[item.key] = item.hosted.name
        # Those before it have found their places by now, and each moved this one on by one.
        place = self._places.pop(0) + len(self._hosted) if self._places else len(self._assistant)
        self._assistant.insert(place, item.hosted.call)
        self._hosted.append(item.hosted.result)

    def _end_round(self) -> None:
        if self._hosted:
            answers, self._hosted = self._hosted, []
            self._end_assistant()
            self._results += answers

    def _answer(self, item: DecodedItem) -> None:
        self._end_assistant()
        shown = self._call_names.get(item.key)
        if shown is None:
            self._unanswerable[item.key] = item.call_id
        self._results.append(item.result(shown or None))

    def _loaded(self, item: DecodedItem, path: str) -> None:
        names = self._add_tools(item, path, deferred=True)
        text = "Loaded tools: " + ", ".join(names) if names else "No tools were found."
        self._end_assistant()
        self._results.append(
            ToolResultBlock(
                call_id=item.call_id,
                content=(TextBlock(text=text),),
                name=self._call_names.get(item.key) or "tool_search",
                references=names,
            )
        )

    def _add_tools(self, item: DecodedItem, path: str, *, deferred: bool) -> tuple[str, ...]:
        try:
            names, notes = self.toolbox.add(item.item.get("tools"), deferred=deferred)
        except TurnFailure as failure:
            raise rebased(f"{path}.tools", failure) from None
        self.notes = first_cases(self.notes, f"{path}.tools", notes)
        return names

    def _end_assistant(self) -> None:
        if self._hosted:
            self._end_round()
        if self._places:
            self._places = []
            self.notes = first_cases(self.notes, "", (_UNANSWERED,))
        if self._assistant:
            self.messages.append(Message(role="assistant", blocks=tuple(self._assistant)))
            self._assistant.clear()

    def _end_results(self) -> None:
        if self._results:
            self.messages.append(Message(role="user", blocks=tuple(self._results)))
            self._results.clear()

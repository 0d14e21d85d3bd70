"""The books of the brokers under any history, in virtual time: who is asked, who is looked at, and how often."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.brokers.members import FIRST_PAUSE_SECONDS, JITTER, LONGEST_PAUSE_SECONDS, BrokerMembers, MemberState
from proxy.brokers.target import BrokerAddress

HOSTS = [BrokerAddress(f"broker-{number}", 6650) for number in range(5)]
some_hosts = st.lists(st.sampled_from(HOSTS), min_size=1, unique=True)
a_host = st.sampled_from(HOSTS)


class MembersMachine(RuleBasedStateMachine):
    """What a proxy may do with the books; `looks` holds when each look under way began."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.jitter = 0.0
        self.members = BrokerMembers(HOSTS[:3], lambda: self.jitter)
        self.looks: dict[BrokerAddress, float] = {}
        self.ended: dict[BrokerAddress, float] = {}

    @rule(seconds=st.floats(0.001, 2.0), jitter=st.floats(0, 1))
    def time_passes(self, seconds: float, jitter: float) -> None:
        """Let time pass, but no look that is due be forgotten."""
        self.jitter = jitter
        due = self.members.next_probe()
        self.now = self.now + seconds if due is None else max(self.now, min(self.now + seconds, due))

    @rule()
    def looks_begin(self) -> None:
        for address in self.members.begin_probes(self.now):
            assert address not in self.looks, "two looks at one broker"
            ended = self.ended.get(address)
            assert ended is None or self.now - ended >= FIRST_PAUSE_SECONDS * (1 - JITTER) - 1e-9
            self.looks[address] = self.now

    @precondition(lambda self: self.looks)
    @rule(data=st.data(), answers=st.booleans())
    def a_look_ends(self, data: st.DataObject, answers: bool) -> None:
        address = data.draw(st.sampled_from(sorted(self.looks, key=str)))
        began = self.looks.pop(address)
        back = self.members.probed(address, began, self.now, None if answers else "refused")
        assert not back or (answers and self.members.usable(address))
        if began == self.now:
            self.ended[address] = self.now

    @rule(address=a_host, answers_tcp=st.booleans())
    def one_could_not_be_used(self, address: BrokerAddress, answers_tcp: bool) -> None:
        self.ended.pop(address, None)
        self.members.failed(address, self.now, "gone", answers_tcp=answers_tcp)
        assert not self.members.usable(address)

    @rule(address=a_host)
    def one_could_be_used(self, address: BrokerAddress) -> None:
        self.ended.pop(address, None)
        self.members.worked(address, self.now)
        assert self.members.usable(address) == (address in self.members)

    @rule(addresses=some_hosts)
    def names_resolve_to_others(self, addresses: list[BrokerAddress]) -> None:
        before = {member.address: member.state for member in self.members.all()}
        self.members.replace(addresses, self.now)
        self.looks = {address: at for address, at in self.looks.items() if address in addresses}
        self.ended.clear()
        after = {member.address: member.state for member in self.members.all()}
        assert after == {address: before.get(address, MemberState.UNKNOWN) for address in addresses}

    @rule(key=st.none() | st.sampled_from("abc"), avoid=st.none() | a_host)
    def one_is_chosen(self, key: str | None, avoid: BrokerAddress | None) -> None:
        usable = {member.address for member in self.members.all() if member.state is not MemberState.DOWN}
        up = {member.address for member in self.members.all() if member.state in (MemberState.UP, MemberState.UNKNOWN)}
        chosen = self.members.choose(self.now, key, avoid)
        assert (chosen is None) == (not usable)
        assert chosen is None or chosen in usable
        if key is not None and usable == up:
            # Nobody is on trial: the key's nearest of all, remembered or not.
            nearest = BrokerMembers([host for host in up if host != avoid] or up, lambda: 0.0).home(key)
            assert chosen == nearest
        if len(up) > 1 or up - {avoid}:
            assert chosen != avoid

    @invariant()
    def who_is_down_will_be_looked_at_soon(self) -> None:
        next_probe = self.members.next_probe()
        for member in self.members.all():
            if member.state is MemberState.DOWN and not member.probing:
                assert next_probe is not None
                assert next_probe <= self.now + LONGEST_PAUSE_SECONDS

    @invariant()
    def who_is_not_down_is_not_looked_at(self) -> None:
        waiting = [m for m in self.members.all() if m.state is MemberState.DOWN and not m.probing]
        assert bool(waiting) == (self.members.next_probe() is not None)


TestMembersMachine = MembersMachine.TestCase


@given(some_hosts, st.integers(1, 10), st.text())
def test_turns_are_even_and_a_key_has_one_home(hosts: list[BrokerAddress], rounds: int, key: str) -> None:
    members = BrokerMembers(hosts, lambda: 0.0)
    taken = Counter(members.choose(0.0) for _ in range(rounds * len(hosts)))
    assert taken == dict.fromkeys(hosts, rounds)
    assert {members.choose(0.0, key) for _ in range(5)} == {members.home(key)}


@given(st.lists(st.text(), min_size=1, unique=True))
def test_only_the_keys_of_a_broker_that_leaves_move(keys: list[str]) -> None:
    members = BrokerMembers(HOSTS, lambda: 0.0)
    before = {key: members.choose(0.0, key) for key in keys}
    members.failed(HOSTS[0], 0.0, "gone", answers_tcp=False)
    for key, home in before.items():
        assert members.choose(0.0, key) == home if home != HOSTS[0] else members.choose(0.0, key) in HOSTS[1:]


def test_pauses_double_up_to_the_longest_and_jitter_only_shortens_them() -> None:
    for jitter in (0.0, 1.0):
        members = BrokerMembers(HOSTS[:1], lambda jitter=jitter: jitter)  # type: ignore[misc]
        members.failed(HOSTS[0], 0.0, "gone", answers_tcp=False)
        now, pauses = 0.0, []
        for _ in range(6):
            due = members.next_probe()
            assert due is not None
            pauses.append((due - now) / (1 - JITTER * jitter))
            now = due
            assert members.begin_probes(now) == [HOSTS[0]]
            members.probed(HOSTS[0], now, now, "refused")
        assert [round(pause, 9) for pause in pauses] == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5]


def test_one_that_answered_tcp_alone_gets_one_request_at_a_time_until_one_gets_through() -> None:
    members = BrokerMembers(HOSTS[:2], lambda: 0.0)
    members.failed(HOSTS[0], 0.0, "silent", answers_tcp=True)
    members.begin_probes(0.05)
    members.probed(HOSTS[0], 0.05, 0.05, None)
    chosen = Counter(members.choose(0.05) for _ in range(10))
    assert chosen == {HOSTS[0]: 1, HOSTS[1]: 9}
    assert members.worked(HOSTS[0], 0.05)
    assert Counter(members.choose(0.05) for _ in range(10)) == {HOSTS[0]: 5, HOSTS[1]: 5}


def test_one_on_trial_that_fails_is_down_for_longer() -> None:
    members = BrokerMembers(HOSTS[:1], lambda: 0.0)
    now = 0.0
    for pause in (0.05, 0.1, 0.2):
        members.failed(HOSTS[0], now, "silent", answers_tcp=True)
        due = members.next_probe()
        assert due is not None
        assert round(due - now, 9) == pause
        now = due
        members.begin_probes(now)
        members.probed(HOSTS[0], now, now, None)


def test_failures_of_those_on_their_way_are_one_failure() -> None:
    members = BrokerMembers(HOSTS[:1], lambda: 0.0)
    members.failed(HOSTS[0], 0.0, "gone", answers_tcp=False)
    due = members.next_probe()
    assert not members.failed(HOSTS[0], 0.01, "gone, too", answers_tcp=False)
    assert members.next_probe() == due

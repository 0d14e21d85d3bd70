"""The phases of a proxy's end, moment by moment, without a signal and without a clock."""

import pytest

from proxy.app.lifecycle import QUIET_SECONDS, DeploymentRole, Phase, Shutdown, ShutdownPlan, StopSignal

NOW = 1000.0
GATEWAY = ShutdownPlan(DeploymentRole.GATEWAY, pre_drain_seconds=5.0, drain_seconds=15.0)
SIDECAR = ShutdownPlan(DeploymentRole.SIDECAR, pre_drain_seconds=5.0, drain_seconds=15.0)


def told(plan: ShutdownPlan, what: StopSignal = StopSignal.TERMINATE) -> Shutdown:
    shutdown = Shutdown()
    assert shutdown.update(7, NOW) is Phase.SERVING
    shutdown.signalled(what, plan, NOW)
    return shutdown


def test_a_gateway_is_not_ready_at_once_but_accepts_until_balancers_know() -> None:
    shutdown = told(GATEWAY)
    assert shutdown.update(7, NOW) is Phase.LEAVING
    assert (shutdown.ready, shutdown.accepting) == (False, True)
    assert shutdown.update(0, NOW + 4.999) is Phase.LEAVING
    assert shutdown.seconds_left(NOW + 4) == 1.0
    assert shutdown.update(7, NOW + 5) is Phase.DRAINING
    assert not shutdown.accepting


def test_a_gateways_drain_ends_with_the_last_client_or_with_its_time() -> None:
    shutdown = told(GATEWAY)
    shutdown.update(2, NOW + 5)
    assert shutdown.update(1, NOW + 19.999) is Phase.DRAINING
    assert shutdown.update(1, NOW + 20) is Phase.CLOSING
    shutdown = told(GATEWAY)
    shutdown.update(2, NOW + 5)
    assert shutdown.update(0, NOW + 6) is Phase.CLOSING
    assert shutdown.seconds_left(NOW + 6) == 0.0


def test_a_look_that_comes_late_does_not_lengthen_the_drain() -> None:
    shutdown = told(GATEWAY)
    assert shutdown.update(2, NOW + 12) is Phase.DRAINING
    assert shutdown.seconds_left(NOW + 12) == 8.0
    shutdown = told(GATEWAY)
    assert shutdown.update(2, NOW + 30) is Phase.CLOSING


def test_a_sidecar_goes_on_as_before_while_its_application_is_there() -> None:
    shutdown = told(SIDECAR)
    assert shutdown.update(1, NOW + 14.9) is Phase.LEAVING
    assert (shutdown.ready, shutdown.accepting) == (True, True)


def test_a_sidecar_closes_when_nobody_was_there_for_a_moment() -> None:
    shutdown = told(SIDECAR)
    assert shutdown.update(1, NOW + 3) is Phase.LEAVING
    assert shutdown.update(0, NOW + 3 + QUIET_SECONDS - 0.01) is Phase.LEAVING
    assert shutdown.update(0, NOW + 3 + QUIET_SECONDS) is Phase.CLOSING
    assert not shutdown.ready


def test_an_application_that_connects_anew_keeps_its_sidecar() -> None:
    shutdown = told(SIDECAR)
    for tenths in range(100):
        assert shutdown.update(tenths % 9 == 0, NOW + tenths / 10) is Phase.LEAVING


@pytest.mark.parametrize("plan", [GATEWAY, SIDECAR])
@pytest.mark.parametrize("seconds", [0.0, 3.0, 7.0])
@pytest.mark.parametrize("second", list(StopSignal))
def test_a_second_signal_is_the_end(plan: ShutdownPlan, seconds: float, second: StopSignal) -> None:
    shutdown = told(plan)
    shutdown.update(1, NOW + seconds)
    shutdown.signalled(second, plan, NOW + seconds)
    assert shutdown.update(1, NOW + seconds) is Phase.CLOSING
    shutdown.signalled(second, plan, NOW + seconds)
    assert shutdown.phase is Phase.CLOSING


@pytest.mark.parametrize("plan", [GATEWAY, SIDECAR])
def test_a_drain_that_is_called_off_is_as_if_there_had_been_none(plan: ShutdownPlan) -> None:
    shutdown = told(plan)
    shutdown.update(7, NOW + 6)
    shutdown.undone()
    assert shutdown.update(7, NOW + 100) is Phase.SERVING
    assert (shutdown.ready, shutdown.accepting, shutdown.seconds_left(NOW + 100)) == (True, True, 0.0)
    shutdown.signalled(StopSignal.TERMINATE, GATEWAY, NOW + 200)
    assert shutdown.update(7, NOW + 204) is Phase.LEAVING


def test_what_closes_goes_on_closing() -> None:
    shutdown = told(GATEWAY)
    shutdown.signalled(StopSignal.TERMINATE, GATEWAY, NOW)
    shutdown.undone()
    assert shutdown.update(7, NOW) is Phase.CLOSING


@pytest.mark.parametrize("plan", [GATEWAY, SIDECAR])
def test_a_proxy_whose_sockets_another_one_has_drains_at_once_and_stays_ready(plan: ShutdownPlan) -> None:
    shutdown = told(plan, StopSignal.HAND_OVER)
    assert shutdown.update(7, NOW) is Phase.DRAINING
    # Probes that still have a connection here must not take the address out of a load balancer.
    assert (shutdown.ready, shutdown.accepting) == (True, False)
    assert shutdown.update(1, NOW + 14.999) is Phase.DRAINING
    assert shutdown.update(1, NOW + 15) is Phase.CLOSING

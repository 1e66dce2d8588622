"""Peaks worked out by hand."""

from trainlab.measure.memory import Sighting, SizeChange, find_peak


def test_a_block_is_told_from_a_later_one_at_the_same_address() -> None:
    peak = find_peak(
        before={1: 100, 2: 10},
        changes=[
            SizeChange(10, 2, -10),  # the old gradient
            SizeChange(20, 3, 50),  # saved
            SizeChange(40, 3, -50),
            SizeChange(50, 3, 40),  # the new gradient, where the saved tensor was
            SizeChange(60, 4, 30),
            SizeChange(70, 4, -30),
        ],
        phase_ends=[(15, "zero_grad"), (30, "loss"), (55, "backward"), (80, "optimizer")],
        sightings=[
            Sighting("gradients", 0, {2: 10}),
            Sighting("activations", 2, {3: 50}),
            Sighting("parameters", 6, {1: 100}),
            Sighting("gradients", 6, {3: 40}),
        ],
    )
    assert (peak.num_bytes, peak.phase) == (170, "optimizer")
    assert peak.alive == {"parameters": 100, "gradients": 40, "activations": 0}


def test_gradients_of_the_step_before_are_gradients_at_a_peak_before_they_are_freed() -> None:
    peak = find_peak(
        before={1: 100, 2: 90},
        changes=[
            SizeChange(10, 3, 30),
            SizeChange(20, 2, -90),
            SizeChange(40, 2, 90),
            SizeChange(50, 3, -30),
        ],
        phase_ends=[(15, "data"), (30, "loss"), (60, "optimizer")],
        sightings=[Sighting("gradients", 0, {2: 90}), Sighting("gradients", 4, {2: 90})],
    )
    assert (peak.num_bytes, peak.phase, peak.alive) == (220, "data", {"gradients": 90})

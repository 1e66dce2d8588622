import torch

from trainlab.train.seeds import data_order, derived_seed, seeded


def test_data_order_is_a_permutation_that_depends_on_seed_and_epoch_only() -> None:
    first = data_order(1, 1, 100)
    torch.manual_seed(99)
    assert torch.equal(first, data_order(1, 1, 100))
    assert torch.equal(first.sort().values, torch.arange(100))
    assert not torch.equal(first, data_order(1, 2, 100))
    assert not torch.equal(first, data_order(2, 1, 100))


def test_streams_for_different_purposes_are_unrelated() -> None:
    seeds = {
        derived_seed(s, p, i) for s in range(20) for p in ("weights", "order") for i in range(20)
    }
    assert len(seeds) == 800


def test_drawing_weights_leaves_the_callers_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(1, "weights"):
        torch.rand(10)
    assert torch.equal(torch.rand(3), expected)

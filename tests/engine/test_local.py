"""The in-process engine: Algorithm 1 to the letter, and the same bits whatever runs it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedpu.aggregation import FedProx
from fedpu.applications.experiment import run
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.engine import ClientTrainer, Job, LocalEngine
from fedpu.engine.pool import Piece
from fedpu.engine.stacked import trainer as stacked_trainer
from fedpu.errors import TrainingError
from fedpu.method import Batch, Method, shuffled_batches
from fedpu.randomness import torch_generator
from fedpu.risk import co_negatives
from fedpu.round import Broadcast, Work


@pytest.fixture
def job(tiny_config: Config) -> Job:
    return Job(prepare(tiny_config).federation, tiny_config.method, tiny_config.model, seed=0)


def bits(result) -> list[torch.Tensor]:  # type: ignore[no-untyped-def]
    return list(result.model.state_dict().values())


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_client_update_is_a_plain_loop_of_sgd(job: Job) -> None:
    """Written out by hand: autograd.grad, momentum and weight decay in formulas, FedProx's term in the loss itself."""
    work = Work(client=2, round=4, lr=0.05, epochs=2, batch_size=30, momentum=0.5, weight_decay=0.01)
    job = replace(job, rule=FedProx(mu=0.3))
    start = {name: value.clone() for name, value in job.initial_model().state_dict().items()}
    [(update, _)] = ClientTrainer(job, torch.device("cpu")).update(Broadcast(start), Piece([work], {}, each=True))

    network = job.initial_model()
    network.load_state_dict(start)
    client = job.federation.client(2)
    constants = job.method.constants(client.summary, co_negatives(job.federation.positive), len(job.federation))
    parameters = list(network.parameters())
    anchor = [p.detach().clone() for p in parameters]
    velocity = [torch.zeros_like(p) for p in parameters]
    for epoch in range(2):
        order = torch.randperm(len(client.labels), generator=torch_generator(0, "batches", 4, 2, epoch))
        for positions in order.split(30):
            inputs, labels = client.batch(positions)
            loss = job.method.objective(network, Batch(labels, {"weak": inputs}), constants)["total"]
            distance = sum(((p - a) ** 2).sum() for p, a in zip(parameters, anchor, strict=True))
            gradients = torch.autograd.grad(loss + 0.5 * 0.3 * distance, parameters)
            with torch.no_grad():
                for p, v, g in zip(parameters, velocity, gradients, strict=True):
                    v.mul_(0.5).add_(g + 0.01 * p)
                    p.sub_(0.05 * v)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(update.model[name], value, rtol=1e-5, atol=1e-6)
    assert update.examples == int(job.federation.sizes[2])


def drawn(usable: torch.Tensor, work: Work) -> list[torch.Tensor]:
    return shuffled_batches(usable, work, lambda epoch: torch_generator(0, "batches", epoch))


def test_a_straggler_does_part_of_its_steps() -> None:
    usable = torch.arange(95)
    full = drawn(usable, Work(client=0, round=0, lr=0.1, epochs=3, batch_size=10))
    half = drawn(usable, Work(client=0, round=0, lr=0.1, epochs=3, batch_size=10, share=0.5))
    none = drawn(usable, Work(client=0, round=0, lr=0.1, epochs=3, batch_size=10, share=0.0))
    assert (len(full), len(half), len(none)) == (30, 15, 1)
    assert same(full[:15], half)
    assert sorted(torch.cat(full[:10]).tolist()) == list(range(95))
    seven = Work(client=0, round=0, lr=0.1, epochs=10, batch_size=10, share=7 / 10)
    assert len(drawn(torch.arange(90), seven)) == 63, "seven whole epochs of nine batches"


@pytest.mark.parametrize("method", ["fedpu", "positive-only"])
def test_same_seed_same_bits_for_any_number_of_workers_and_evaluation_interval(
    tiny_config: Config, method: str
) -> None:
    config = tiny_config.with_(f"method.name={method}")
    reference = bits(run(config))
    for change in ("engine.workers=1", "engine.workers=2", "engine.workers=3", "evaluation.every=2"):
        assert same(reference, bits(run(config.with_(change)))), change
    assert not same(reference, bits(run(config.with_("seed=1"))))


def test_a_full_batch_is_the_same_however_much_of_its_passes_is_kept(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config.with_("partition.clients=2", "labelling.positive=5", "aggregation.name=fedsgd")
    models = []
    for kept in (0, 200 * 64, 2**24):  # nothing, one pass of 128 digits of 8×8 pixels, all of them
        monkeypatch.setattr(stacked_trainer, "KEPT", kept)
        models.append(bits(run(config)))
    assert same(models[0], models[1])
    assert same(models[0], models[2])


def test_dropout_depends_on_seed_round_and_client_alone(tiny_config: Config) -> None:
    config = tiny_config.with_(
        "data.name=mnist-5k", "model.name=paper-cnn", "model.dropout=0.5", "aggregation.rounds=1"
    )
    torch.manual_seed(1)
    one = bits(run(config))
    torch.manual_seed(2)
    assert same(one, bits(run(config.with_("engine.workers=2"))))


def test_the_global_generator_and_thread_count_are_left_alone(tiny_config: Config) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        run(tiny_config)
        assert torch.equal(torch.rand(3), expected)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_batchnorm_runs_and_its_statistics_are_averaged(tiny_config: Config) -> None:
    config = tiny_config.with_("data.name=mnist-5k", "model.name=resnet9", "model.norm=batch", "model.width=8")
    result = run(config.with_("aggregation.rounds=1", "aggregation.batch_size=400"))
    state = result.model.state_dict()
    tracked = [name for name in state if name.endswith("running_var")]
    assert tracked
    assert all((state[name] != 1).any() for name in tracked)
    assert all(int(state[name]) > 0 for name in state if name.endswith("num_batches_tracked"))


def test_parameters_that_are_no_numbers_stop_the_run(tiny_config: Config) -> None:
    for workers in (1, 2):
        with pytest.raises(TrainingError, match=r"became NaN or infinite in round \d.*Lower aggregation\.lr"):
            run(tiny_config.with_("aggregation.lr=1e6", "aggregation.weight_decay=1e6", f"engine.workers={workers}"))


def test_workers_do_not_outlive_a_killed_main_process() -> None:
    script = (
        "from fedpu.config import Config\nfrom fedpu.applications.experiment import run\n"
        "c = Config.from_dict({'data': {'name': 'digits'}, 'model': {'name': 'mlp'}, 'engine': {'workers': 2}})\n"
        "run(c, on_round=lambda line: print(line['round'], flush=True))\n"
    )
    main = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert main.stdout is not None
    main.stdout.readline()  # a round was finished, so the workers are up
    main.send_signal(signal.SIGKILL)
    main.wait()
    main.stdout.close()
    for _ in range(100):
        try:
            os.killpg(main.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a worker is still running ten seconds after its main process was killed")


def test_a_killed_worker_is_started_anew_and_the_run_goes_on_to_the_same_bits(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config.with_("engine.name=reference", "aggregation.rounds=4")
    whole = bits(run(config))
    batches, marker = Method.batches, tmp_path / "killed"

    def fatal_once(*arguments: Any) -> Any:
        if multiprocessing.parent_process() is not None and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batches(*arguments)

    def kill_an_idle_one(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            multiprocessing.active_children()[0].kill()

    monkeypatch.setattr(Method, "batches", fatal_once)
    assert same(whole, bits(run(config.with_("engine.workers=2"), on_round=kill_an_idle_one)))
    assert marker.exists()


def test_workers_that_are_killed_again_and_again_end_the_run_with_a_sentence(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Method, "batches", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(TrainingError, match=r"killed 4 times in a row, .* memory ran out\. Set engine\.workers = 1"):
        run(tiny_config.with_("engine.name=reference", "engine.workers=2"))


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no such GPU"):
        LocalEngine(device="cuda:99")
    with pytest.raises(ValueError, match="must be 'auto'"):
        LocalEngine(device="abacus")


def test_a_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    assert LocalEngine().compute_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert LocalEngine().compute_device().type == "cuda"
    assert LocalEngine().worker_count(job) == 1
    assert LocalEngine().slow_because(job) is None, "on a GPU PyTorch's own layers are the fast path"
    assert LocalEngine(device="cpu").compute_device().type == "cpu"
    assert LocalEngine(device="cpu", workers=2).worker_count(job) == 2

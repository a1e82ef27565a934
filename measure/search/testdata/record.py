"""Lets MLRsearch 1.2.1 search the simulated devices (the arithmetic is that of ../simulated/device.go)."""
import json
import math

from MLRsearch import (AbstractMeasurer, Config, MeasurementResult,
                       MultipleLossRatioSearch, SearchGoal)

M = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & M
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & M
    return x ^ x >> 31


def normal(seed, n):
    u = ((mix((seed * 0x10001 + 2 * n) & M) >> 11) + 0.5) / (1 << 53)
    v = ((mix((seed * 0x10001 + 2 * n + 1) & M) >> 11) + 0.5) / (1 << 53)
    return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)


class Simulated(AbstractMeasurer):
    def __init__(self, d):
        self.d, self.trials, self.elapsed, self.before = d, 0, 0.0, {}

    def measure(self, intended_duration, intended_load):
        d = self.d
        self.trials += 1
        question = (float(intended_load), math.floor(intended_duration * 1000 + 0.5))
        self.before[question] = self.before.get(question, 0) + 1
        capacity = (d["capacity"] * (1 + d["drift"] * self.elapsed)
                    * (1 + d["noise"] * normal(d["seed"], self.before[question])))
        self.elapsed += intended_duration
        sent = math.floor(intended_load * intended_duration)
        through = min(sent, math.floor(max(capacity, 0) * intended_duration))
        received = through - math.floor(through * d["floor"])
        return MeasurementResult(
            intended_duration=intended_duration, intended_load=intended_load,
            offered_count=sent, forwarding_count=received, intended_count=sent)


def main():
    with open("devices.json", encoding="utf-8") as f:
        spec = json.load(f)
    goals = [SearchGoal(
        loss_ratio=g["loss_ratio"], exceed_ratio=g["exceed_ratio"], relative_width=g["width"],
        initial_trial_duration=g["initial_trial"] / 1e9, final_trial_duration=g["final_trial"] / 1e9,
        duration_sum=g["sum"] / 1e9, fail_fast=False) for g in spec["goals"]]
    out = []
    for d in spec["devices"]:
        # A noisy device answers by how often it was asked: goals that share trials would change each other's answers.
        together = [goals] if d["noise"] == 0 else [[g] for g in goals]
        for asked in together:
            device = Simulated(d)
            config = Config()
            config.goals = asked
            config.min_load, config.max_load = spec["min"], spec["max"]
            config.search_duration_max = 100000.0
            config.warmup_duration = None
            search = MultipleLossRatioSearch(config=config)
            results = search.search(measurer=device, debug=lambda _: None)
            out.append({"device": d["name"], "seed": d["seed"], "trials": device.trials, "seconds": device.elapsed, "goals": [{
                "goal": spec["goals"][goals.index(g)]["name"],
                "lower": float(r.relevant_lower_bound) if r.relevant_lower_bound else 0,
                "upper": float(r.relevant_upper_bound) if r.relevant_upper_bound else 0,
                "throughput": float(r.conditional_throughput) if r.conditional_throughput else 0,
            } for g, r in ((g, results[g]) for g in asked)]})
    print(json.dumps(out, indent=1))


main()

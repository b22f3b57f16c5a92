"""A program for `transformers.Trainer` that knows nothing of Spool: a checkpoint half way, evaluation, and a run resumed.

usage: hf_trainer.py FOLDER [--cpu]     prints a JSON line: losses by step, evaluation, a sum over the parameters
"""

import json
import sys

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCABULARY = 61


class Sequences(Dataset):
    """Counting modulo a prime, from a start of each one's own."""

    def __init__(self, count: int, length: int = 12) -> None:
        self.rows = (torch.arange(count)[:, None] * 7 + torch.arange(length) * 5) % VOCABULARY

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def trainer(folder: str, cpu: bool) -> Trainer:
    torch.manual_seed(0)
    shape = {"n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 16}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **shape))
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=6,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        warmup_steps=2,
        logging_steps=1,
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        report_to=[],
        disable_tqdm=True,
        use_cpu=cpu,
        seed=3,
    )
    return Trainer(model, arguments, train_dataset=Sequences(64), eval_dataset=Sequences(10))


def outcome(done: Trainer) -> dict[str, object]:
    rows = done.state.log_history
    return {
        "losses": [row["loss"] for row in rows if "loss" in row],
        "norms": [row["grad_norm"] for row in rows if "grad_norm" in row],
        "evaluation": [row["eval_loss"] for row in rows if "eval_loss" in row],
        "parameters": sum(p.detach().double().abs().sum().item() for p in done.model.parameters()),
        "device": done.args.device.type,
    }


def main() -> None:
    folder, cpu = sys.argv[1], "--cpu" in sys.argv
    whole = trainer(folder, cpu)
    whole.train()
    resumed = trainer(folder, cpu)
    resumed.train(resume_from_checkpoint=f"{folder}/checkpoint-3")
    print(json.dumps([outcome(whole), outcome(resumed)]))


if __name__ == "__main__":
    main()

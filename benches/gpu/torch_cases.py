"""The same cases with PyTorch, eager or compiled: time of a step by events, and memory. Prints one JSON object a line.

    python3 benches/gpu/torch_cases.py            # eager
    python3 benches/gpu/torch_cases.py --compile
    python3 benches/gpu/torch_cases.py --compile --warm   # fills the compiler's cache on disk and times nothing
"""

import argparse
import json
import statistics

import torch
from torch import nn


def large_images(batch, device):
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 511 * 511, 10))
    x = torch.rand(batch, 3, 1024, 1024, device=device)
    y = torch.rand(batch, 10, device=device)
    loss = lambda out: nn.functional.mse_loss(torch.softmax(out, 1), y)
    return model, x, loss, torch.optim.Adam


def six_convolutions(batch, device):
    layers, channels = [], 3
    for index, filters in enumerate([256, 256, 512, 512, 1024, 1024]):
        layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
        channels = filters
        if index in (1, 3):
            layers.append(nn.MaxPool2d(2))
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 10))
    x = torch.rand(batch, 3, 128, 128, device=device)
    y = torch.randint(0, 10, (batch,), device=device)
    return model, x, lambda out: nn.functional.cross_entropy(out.float(), y), torch.optim.Adam


def resnet(batch, device):
    import torchvision

    model = torchvision.models.resnet50(weights=None)
    x = torch.rand(batch, 3, 224, 224, device=device)
    y = torch.randint(0, 1000, (batch,), device=device)
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    return model, x, lambda out: nn.functional.cross_entropy(out.float(), y), sgd


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.before, self.behind = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, tokens, width = x.shape
        parts = self.project(self.before(x)).view(rows, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(rows, tokens, width)
        x = x + self.join(y)
        return x + self.mlp(self.behind(x))


class Gpt2(nn.Module):
    def __init__(self, tokens=1024, width=768, heads=12, blocks=12, words=50304):
        super().__init__()
        self.token, self.place = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.logits.weight = self.token.weight

    def forward(self, ids):
        x = self.token(ids) + self.place.weight[None, :ids.shape[1]]
        return self.logits(self.norm(self.blocks(x)))


def gpt2(batch, device):
    ids = torch.randint(0, 50304, (batch, 1024), device=device)
    y = torch.randint(0, 50304, (batch * 1024,), device=device)
    adamw = lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    return Gpt2(), ids, lambda out: nn.functional.cross_entropy(out.view(-1, 50304).float(), y), adamw


CASES = [
    ("large images, f32, batch 64", large_images, 64, None, True),
    ("large images, f32, batch 256", large_images, 256, None, False),
    ("six convolutions, TF32, batch 32", six_convolutions, 32, None, True),
    ("six convolutions, bf16, batch 128", six_convolutions, 128, torch.bfloat16, True),
    ("ResNet-50 224, bf16, batch 256", resnet, 256, torch.bfloat16, True),
    ("ResNet-50 224, TF32, batch 128", resnet, 128, None, True),
    ("GPT-2 124M, 1,024 tokens, bf16, batch 16", gpt2, 16, torch.bfloat16, True),
]


def run(name, build, batch, dtype, compiled, warm):
    device = "cuda"
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model, x, loss, optimizer = build(batch, device)
    model = model.to(device).to(memory_format=torch.channels_last)
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    optimizer = optimizer(model.parameters())
    whole = lambda x: loss(model(x))
    runs = torch.compile(whole) if compiled else whole

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype, enabled=dtype is not None):
            value = runs(x)
        value.backward()
        optimizer.step()

    for _ in range(1 if warm else 4):
        step()
    torch.cuda.synchronize()
    if warm:
        return {"case": name, "compiled": True}
    times = []
    for _ in range(8):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    gib = 2**30
    return {
        "case": name,
        "milliseconds": statistics.median(times),
        "gibibytes": torch.cuda.max_memory_allocated() / gib,
        "gibibytes_reserved": torch.cuda.max_memory_reserved() / gib,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    # Compiling takes long: what gains most by it comes first.
    for name, build, batch, dtype, compiles in reversed(CASES) if options.compile else CASES:
        if options.only not in name or (options.compile and not compiles):
            continue
        try:
            result = run(name, build, batch, dtype, options.compile, options.warm)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            result = {"case": name, "error": str(error).splitlines()[0][:200]}
        print(json.dumps(result), flush=True)
        torch._dynamo.reset()

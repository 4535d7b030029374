"""The peer: the same networks in plain PyTorch, compiled, with its fused attention.

Written as a PyTorch user would, with `nn.Linear`, `F.scaled_dot_product_attention`, autocast to
bfloat16 and the fused AdamW, and without masks of padding, for there is none.
"""

import math
import time

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.accelerator.cases import NEW, PATCH, SOURCE, product_operations, repeated

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Attention(nn.Module):
    def __init__(self, width, heads, causal=False, across=False):
        super().__init__()
        self.heads, self.causal, self.across = heads, causal, across
        self.query = nn.Linear(width, width if across else 3 * width)
        self.context = nn.Linear(width, 2 * width) if across else None
        self.output = nn.Linear(width, width)

    def split(self, x, parts):
        """`(batch, length, parts * width)` -> parts of `(batch, heads, length, dim)`."""
        batch, length, _ = x.shape
        return x.view(batch, length, parts, self.heads, -1).permute(2, 0, 3, 1, 4)

    def join(self, y):
        return self.output(y.transpose(1, 2).flatten(2))

    def forward(self, x, context=None):
        if self.across:
            (query,), (key, value) = self.split(self.query(x), 1), self.project(context)
        else:
            query, key, value = self.split(self.query(x), 3)
        return self.join(F.scaled_dot_product_attention(query, key, value, is_causal=self.causal))

    def project(self, context):
        return self.split(self.context(context), 2)

    def step(self, x, cache, index, seen):
        """One token, `(rows, 1, width)`; a cache of the context is only read."""
        if self.across:
            (query,), (key, value) = self.split(self.query(x), 1), cache
            return self.join(F.scaled_dot_product_attention(query, key, value))
        query, key, value = self.split(self.query(x), 3)
        cache[0].index_copy_(2, index, key)
        cache[1].index_copy_(2, index, value)
        return self.join(F.scaled_dot_product_attention(query, *cache, attn_mask=seen))


class Block(nn.Module):
    def __init__(self, case, activation, causal=False, across=False):
        super().__init__()
        width, self.norm_first = case.width, case.kind != "translation"
        self.attention = Attention(width, case.heads, causal)
        self.cross = Attention(width, case.heads, across=True) if across else None
        self.network = nn.Sequential(
            nn.Linear(width, case.mlp), activation, nn.Linear(case.mlp, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if across else 2))
        self.dropout = nn.Dropout(case.dropout)

    def residual(self, x, norm, branch):
        if self.norm_first:
            return x + self.dropout(branch(norm(x)))
        return norm(x + self.dropout(branch(x)))

    def forward(self, x, context=None):
        x = self.residual(x, self.norms[0], self.attention)
        if self.cross is not None:
            x = self.residual(x, self.norms[1], lambda x: self.cross(x, context))
        return self.residual(x, self.norms[-1], self.network)

    def step(self, x, cache, context, index, seen):
        x = self.residual(x, self.norms[0], lambda x: self.attention.step(x, cache, index, seen))
        x = self.residual(x, self.norms[1], lambda x: self.cross.step(x, context, index, seen))
        return self.residual(x, self.norms[2], self.network)


def sinusoids(length, width):
    rates = torch.exp(-math.log(1e4) * torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class Translator(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.width = case.width
        self.table = nn.Embedding(case.vocab, case.width)
        nn.init.normal_(self.table.weight, std=case.width**-0.5)
        self.register_buffer("positions", sinusoids(max(case.length, NEW, SOURCE), case.width))
        blocks = range(case.layers)
        self.encoder = nn.ModuleList(Block(case, nn.ReLU()) for _ in blocks)
        self.decoder = nn.ModuleList(Block(case, nn.ReLU(), True, True) for _ in blocks)
        self.dropout = nn.Dropout(case.dropout)

    def embed(self, ids):
        x = self.table(ids) * math.sqrt(self.width) + self.positions[: ids.shape[1]]
        return self.dropout(x)

    def encode(self, source):
        x = self.embed(source)
        for block in self.encoder:
            x = block(x)
        return x

    def forward(self, source, target):
        context, x = self.encode(source), self.embed(target)
        for block in self.decoder:
            x = block(x, context)
        return F.linear(x, self.table.weight)

    def step(self, ids, index, caches, contexts, seen):
        """Logits after one more token of every row: `(rows,)` -> `(rows, vocab)`."""
        x = (self.table(ids) * math.sqrt(self.width) + self.positions[index])[:, None]
        for block, cache, context in zip(self.decoder, caches, contexts, strict=True):
            x = block.step(x, cache, context, index, seen)
        return F.linear(x[:, 0], self.table.weight)


class LanguageModel(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.table = nn.Embedding(case.vocab, case.width)
        nn.init.normal_(self.table.weight, std=case.width**-0.5)
        self.positions = nn.Parameter(0.02 * torch.randn(case.length, case.width))
        gelu = nn.GELU(approximate="tanh")
        self.blocks = nn.ModuleList(Block(case, gelu, True) for _ in range(case.layers))
        self.norm, self.dropout = nn.LayerNorm(case.width), nn.Dropout(case.dropout)

    def forward(self, ids):
        x = self.dropout(self.table(ids) + self.positions[: ids.shape[1]])
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.table.weight)


class ViT(nn.Module):
    def __init__(self, case):
        super().__init__()
        self.patches = nn.Conv2d(3, case.width, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, case.width))
        self.positions = nn.Parameter(0.02 * torch.randn(case.length, case.width))
        self.blocks = nn.ModuleList(Block(case, nn.GELU()) for _ in range(case.layers))
        self.norm, self.head = nn.LayerNorm(case.width), nn.Linear(case.width, case.vocab)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def network(case):
    kinds = {"translation": Translator, "image": ViT, "language": LanguageModel}
    torch.manual_seed(0)
    with torch.device(DEVICE):
        return kinds[case.kind](case)


def batch_of(case):
    """Inputs, a tuple, and labels."""
    if case.kind == "image":
        images = torch.randn(case.rows, 3, case.image, case.image, device=DEVICE)
        return (images,), torch.randint(case.vocab, (case.rows,), device=DEVICE)
    source, target, labels = torch.randint(
        3, case.vocab, (3, case.rows, case.length), device=DEVICE
    )
    return ((source, target) if case.kind == "translation" else (target,)), labels


def compiled(function, smoke, **options):
    """By `torch.compile`; as it is in the smoke test, for compiling takes half a minute."""
    return function if smoke else torch.compile(function, **options)


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def train(case, seconds, smoke):
    """Figures of training steps."""
    torch.set_float32_matmul_precision("high")
    model, (inputs, labels) = network(case), batch_of(case)
    parameters = sum(each.numel() for each in model.parameters())
    fused = {"fused": True} if DEVICE == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, **fused)
    smoothing = 0.1 if case.kind == "translation" else 0.0

    def loss_of(inputs, labels):
        logits = model(*inputs).flatten(0, -2)
        return F.cross_entropy(logits, labels.flatten(), label_smoothing=smoothing)

    forward = compiled(loss_of, smoke)
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = forward(inputs, labels)
        loss.backward()
        optimizer.step()
        losses[1:] = [loss.detach()]

    started = time.perf_counter()
    step()
    losses *= 2
    wait()
    until_first = time.perf_counter() - started
    middle, least, most = repeated(step, seconds, wait=wait)
    return {
        "seconds": middle,
        "from": least,
        "to": most,
        "until_first": until_first,
        "parameters": parameters,
        "losses": [float(losses[0]), float(losses[1])],
        "peak_bytes": torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None,
    }


def fixed(shape):
    """Zeros that stay where they are, so that CUDA graphs may write to them."""
    x = torch.zeros(shape, dtype=torch.bfloat16, device=DEVICE)
    torch._dynamo.mark_static_address(x)
    return x


@torch.inference_mode()
def decode(case, search, seconds, smoke):
    """Seconds of greedy or beam search of a batch, the step compiled (with CUDA graphs)."""
    beams, rows = search
    model = network(case).to(torch.bfloat16).eval()
    source = torch.randint(3, case.vocab, (rows, SOURCE), device=DEVICE)
    many, head = rows * beams, case.width // case.heads
    shape = (2, many, case.heads, NEW, head)  # keys and values
    caches = [fixed(shape) for _ in model.decoder]
    contexts = [fixed((*shape[:3], SOURCE, head)) for _ in model.decoder]
    places = torch.arange(NEW, device=DEVICE)
    first = torch.arange(rows, device=DEVICE)[:, None] * beams

    def advance(ids, scores, index):
        """The next token of every row, the rows that they continue, and the scores."""
        logits = model.step(ids, index, caches, contexts, (places <= index)[None])
        if beams == 1:
            return logits.argmax(-1), None, scores
        gained = scores[:, None] + F.log_softmax(logits.float(), -1)
        scores, chosen = gained.view(rows, -1).topk(beams)
        source = (first + chosen // case.vocab).flatten()
        return (chosen % case.vocab).flatten(), source, scores.flatten()

    advance = compiled(advance, smoke, mode="reduce-overhead")

    def run():
        memory = model.encode(source).repeat_interleave(beams, 0)
        for context, block in zip(contexts, model.decoder, strict=True):
            context.copy_(block.cross.project(memory))
        ids = torch.ones(many, dtype=torch.long, device=DEVICE)
        scores = torch.tensor([0.0] + [-1e9] * (beams - 1), device=DEVICE).repeat(rows)
        tokens = torch.zeros(many, NEW, dtype=torch.long, device=DEVICE)
        for index in range(NEW):
            torch.compiler.cudagraph_mark_step_begin()
            found = advance(ids, scores, places[index : index + 1])
            # Copies: the next replay of a graph overwrites what the last one gave.
            ids, moved, scores = (x if x is None else x.clone() for x in found)
            if moved is not None:
                tokens = tokens[moved]
                for cache in caches:
                    cache.copy_(cache[:, moved])
            tokens[:, index] = ids
        return tokens.cpu()

    started = time.perf_counter()
    run()
    until_first = time.perf_counter() - started
    middle, least, most = repeated(run, seconds)
    parameters = sum(each.numel() for each in model.parameters())
    figures = {"seconds": middle, "from": least, "to": most, "until_first": until_first}
    return {**figures, "tokens": NEW, "parameters": parameters}


def products(size, seconds):
    """Operations a second of a product of square matrices in bfloat16."""
    x, y = torch.randn(2, size, size, device=DEVICE, dtype=torch.bfloat16)
    _, least, _ = repeated(lambda: x @ y, seconds, wait=wait)
    return {"rate": product_operations(size) / least, "torch": torch.__version__}

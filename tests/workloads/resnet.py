"""A ResNet of bottleneck blocks trained on batches whose size and resolution change every step: large activations beside small weights."""
import random

import torch
import torch.nn as nn
from common import Steps, iterations, report


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.short = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def network():
    layers, inputs = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, count in [(64, 3), (128, 4), (256, 6), (512, 3)]:
        for number in range(count):
            layers.append(Bottleneck(inputs, width, 2 if number == 0 and width > 64 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def main():
    torch.manual_seed(0)
    random.seed(0)
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    steps = Steps(warm=6)
    for _ in range(iterations(40)):
        batch, side = random.choice([16, 32, 48, 64]), random.choice([160, 192, 224, 256, 288])
        images, labels = torch.randn(batch, 3, side, side).cuda(), torch.randint(0, 1000, (batch,)).cuda()
        with steps:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    report("resnet", steps, loss.item())


if __name__ == "__main__":
    main()

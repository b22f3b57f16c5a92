"""ResNet-50 for images of any size from 32 pixels up.

The variant with the stride in the 3x3 convolution of a bottleneck (often called v1.5), since that is the one
whose speed people quote. Works in both memory formats and on every device: nothing in here knows about Spool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the image size (up to STRIDE), and a batch norm, so that a bias is needless."""
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
            norm=nn.BatchNorm2d(outputs),
        )
    )


class Bottleneck(nn.Module):
    """1x1 down to WIDTH channels, 3x3 (with the stride), 1x1 up to 4 * WIDTH, added to the input.

    [N, inputs, H, W] -> [N, 4 * width, H / stride, W / stride]. Where the shape changes, the input passes a
    strided 1x1 convolution.
    """

    GROWTH = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.GROWTH
        self.reduce = conv_norm(inputs, width, 1)
        self.spatial = conv_norm(width, width, 3, stride)
        self.expand = conv_norm(width, outputs, 1)
        same_shape = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same_shape else conv_norm(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.reduce(x))
        y = self.relu(self.spatial(y))
        y = self.expand(y)
        return self.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, stages of DEPTHS bottlenecks, and a linear classifier: [N, 3, H, W] -> [N, num_classes]."""

    def __init__(self, depths: Sequence[int], num_classes: int = 1000) -> None:
        super().__init__()
        channels = 64
        self.stem = conv_norm(3, channels, 7, stride=2)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        stages = []
        for index, depth in enumerate(depths):
            width = 64 << index
            blocks = []
            for block in range(depth):
                stride = 2 if block == 0 and index > 0 else 1
                blocks.append(Bottleneck(channels, width, stride))
                channels = width * Bottleneck.GROWTH
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(channels, num_classes)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.stem(x)))
        x = self.stages(x)
        return self.classifier(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def resnet50(num_classes: int = 1000) -> ResNet:
    """ResNet-50: 25.6 million parameters at 1000 classes."""
    return ResNet((3, 4, 6, 3), num_classes)

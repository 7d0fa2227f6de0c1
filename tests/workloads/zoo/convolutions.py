"""Convolutions whose algorithms are searched for, recurrent layers, and mixed precision."""
import torch

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.Conv2d(64, 128, 3, 2, 1), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10),
).cuda()
optimizer, scaler = torch.optim.SGD(model.parameters(), 0.05), torch.amp.GradScaler("cuda")
for size in (96, 128, 128, 160):
    with torch.autocast("cuda", torch.float16):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(16, 3, size, size, device="cuda")), torch.randint(0, 10, (16,), device="cuda"))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(bool(torch.isfinite(loss)))
recurrent = torch.nn.LSTM(64, 128, 2).cuda()
print(tuple(recurrent(torch.randn(20, 4, 64, device="cuda"))[0].shape))

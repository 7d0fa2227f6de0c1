"""timm: a small residual network."""
import timm
import torch

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
model = timm.create_model("resnet18", num_classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(10):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(16, 3, 128, 128, device="cuda")), torch.randint(0, 10, (16,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item() < 20)

"""Lightning's trainer."""
import lightning
import torch

torch.manual_seed(0)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def training_step(self, batch, _):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
model = Model()
lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, **quiet).fit(model, torch.utils.data.DataLoader(torch.randn(256, 32), batch_size=16))
print(round(float(model.layer.weight.sum()), 4))

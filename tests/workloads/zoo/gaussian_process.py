"""GPyTorch: a Gaussian process."""
import gpytorch
import torch

torch.manual_seed(0)
x = torch.linspace(0, 1, 200).cuda()
y = torch.sin(6 * x)


class Model(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, at):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(at), self.covar_module(at))


likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
model = Model(likelihood).cuda()
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), 0.1)
for _ in range(20):
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    optimizer.step()
print(bool(torch.isfinite(loss)))

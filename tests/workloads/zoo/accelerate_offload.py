"""accelerate: weights that stay on the host and come to the device layer by layer."""
import torch
from accelerate import cpu_offload
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, vocab_size=1000)
model = cpu_offload(LlamaForCausalLM(config).eval(), execution_device=torch.device("cuda:0"))
with torch.no_grad():
    print(round(float(model(torch.randint(0, 1000, (1, 32)).cuda()).logits.float().mean()), 4))

"""transformers: generation with a static cache, which compiles with graph trees."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, vocab_size=1000)
model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
prompt = torch.randint(0, 1000, (2, 16)).cuda()
for _ in range(3):
    tokens = model.generate(prompt, max_new_tokens=24, do_sample=False, cache_implementation="static")
print(tokens.shape, int(tokens.sum()))

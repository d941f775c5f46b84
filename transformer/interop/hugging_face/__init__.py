"""Hugging Face transformers: reads its models from config.json, model.safetensors and tokenizer.json."""

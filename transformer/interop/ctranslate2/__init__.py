"""CTranslate2, a search of Transformers on CPUs and GPUs: reads and writes its models."""

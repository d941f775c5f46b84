"""What a model is trained to do. Each task is a file or folder here, and one line of TASKS in task.py."""

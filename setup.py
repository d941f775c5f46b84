"""Adds the checkout's config files to the package, where they are installed as transformer/configs."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=['transformer', 'transformer.*']), 'transformer.configs'],
    package_dir={'transformer.configs': 'configs'},
)

"""Chromium for the scripts of this folder: it trusts the certificate of a gateway by a profile of its own."""

import os
import subprocess


def trust(certificate, directory):
    """Make a home directory whose certificate database trusts a certificate."""
    database = f"sql:{directory}/.pki/nssdb"
    os.makedirs(f"{directory}/.pki/nssdb")
    subprocess.run(["certutil", "-N", "-d", database, "--empty-password"], check=True)
    subprocess.run(["certutil", "-d", database, "-A", "-t", "P,,", "-n", "tidemark", "-i", certificate], check=True)


def launch(playwright, chromium, directory):
    """Start Chromium with that home directory. It ignores no error of a certificate."""
    return playwright.chromium.launch(
        executable_path=chromium,
        # Root cannot use the sandbox; the pages are our own.
        args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"],
        env={**os.environ, "HOME": directory},
    )

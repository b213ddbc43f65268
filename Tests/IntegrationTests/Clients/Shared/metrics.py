"""The metrics of a program that runs."""
import urllib.request


def metric(admin, name, **labels):
    """Returns the sum of a metric over the samples with these labels, from the operations listener at a port."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10).read().decode()
    values = [
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith((name + " ", name + "{"))
        and all(f'{label}="{value}"' in line for label, value in labels.items())
    ]
    return sum(values)

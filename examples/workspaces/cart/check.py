# Checks cart.py. Exit code 0 when everything is right.

import sys

sys.dont_write_bytecode = True

from cart import in_euros, subtotal

APPLES = ('apple', 50, 4)
BREAD = ('bread', 300, 1)
CASES = [
    ('subtotal of nothing', subtotal([]), 0),
    ('subtotal of 1 bread at 300', subtotal([BREAD]), 300),
    ('subtotal of 4 apples at 50', subtotal([APPLES]), 200),
    ('subtotal of both', subtotal([APPLES, BREAD]), 500),
    ('in_euros(500)', in_euros(500), '5.00 EUR'),
    ('in_euros(1205)', in_euros(1205), '12.05 EUR'),
]

failed = 0
for what, got, expected in CASES:
    if got != expected:
        print(f'FAIL {what}: expected {expected}, got {got}')
        failed += 1

print(f'{len(CASES) - failed} of {len(CASES)} cases passed')
sys.exit(1 if failed else 0)

# A shopping cart. Prices are in cents.


def subtotal(items):
    total = 0
    for name, price, count in items:
        total += price
    return total


def in_euros(cents):
    return f'{cents // 100}.{cents % 100:02} EUR'

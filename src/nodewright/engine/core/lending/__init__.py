"""How much of what pods request and do not use may be lent?"""

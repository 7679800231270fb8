from supervisor import Actor, Claim, Done, Outcome, Tools
from supervisor.plain_lease import plain_lease

LEASE = plain_lease("greetings.letter", {"name": "text"}, sets={"greeting": "text"})


async def handle(claim: Claim, tools: Tools) -> Outcome:
    return Done({"greeting": f"Hello, {claim.payload['name']}!"})


ACTOR = Actor(domain="greetings", handle=handle, lease=LEASE)

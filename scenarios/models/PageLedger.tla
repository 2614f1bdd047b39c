----------------------------- MODULE PageLedger -----------------------------
(***************************************************************************)
(* The ledger of one pool of pages, prefill's or decode's: operators over  *)
(* a pool, and over a pool with the strays so far, that give what becomes  *)
(* of it.  PdLedger has what happens between the two pools.                *)
(*                                                                         *)
(* A page is known by a ticket (page, generation), and it is FREE, PRIVATE,*)
(* SHARED (published in the prefix cache), DUP (its content is published   *)
(* as another page), DRAINING or QUARANTINED.  Who may still reach it is   *)
(* kept apart: a grant is a ticket and one of the handles that reach the   *)
(* page under it, and is there until there is evidence that it stopped.    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Layers,        \* layers of a page: each is accessed by a write of its own
  Without,       \* the guards that are taken away, by the engine's names for them
  Nobody         \* a model value: no request, no bytes, no end

Guarded(name) == name \notin Without
DrainBeforeFree == Guarded("drain-before-free")
QuarantineOnExpiry == Guarded("quarantine-on-expiry")
ControlCarriesGeneration == Guarded("control-carries-generation")

LayerSet == 0..(Layers - 1)
Ticket(p, g, r, a) == [page |-> p, gen |-> g, request |-> r, attempt |-> a]
FreePage(gen) == [state |-> "FREE", gen |-> gen, request |-> Nobody, attempt |-> 0, readers |-> {}]
Stray(what, r, a, owner) == [what |-> what, request |-> r, attempt |-> a, owner |-> owner]
Range(seq) == {seq[i] : i \in DOMAIN seq}
Reverse(seq) == [i \in 1..Len(seq) |-> seq[Len(seq) + 1 - i]]

NewPool(count) ==
  [pages |-> [p \in 0..(count - 1) |-> FreePage(0)],
   free |-> [i \in 1..count |-> i - 1],
   grants |-> {},
   content |-> [p \in 0..(count - 1) |-> [l \in LayerSet |-> Nobody]],
   epoch |-> 0,
   rooms |-> {}, slots |-> <<>>, spare |-> <<>>]

RECURSIVE Take(_, _, _, _)      \* the top `count` pages, each under a fresh generation
Take(got, count, r, a) ==
  IF count = 0 THEN got
  ELSE LET p == Head(got.pool.free)
           t == Ticket(p, got.pool.pages[p].gen + 1, r, a)
           page == [state |-> "PRIVATE", gen |-> t.gen, request |-> r, attempt |-> a, readers |-> {}]
       IN Take([pool |-> [got.pool EXCEPT !.pages[p] = page, !.free = Tail(@)],
                tickets |-> Append(got.tickets, t)], count - 1, r, a)

IsLive(pool, t) == pool.pages[t.page].gen = t.gen /\ pool.pages[t.page].state # "FREE"
IsShared(pool, t) == pool.pages[t.page].gen = t.gen /\ pool.pages[t.page].state \in {"SHARED", "DUP"}
Free(pool, p) == [pool EXCEPT !.pages[p] = FreePage(@.gen), !.free = <<p>> \o @]

Grant(pool, tickets, handles) == [pool EXCEPT !.grants = @ \cup (Range(tickets) \X handles)]
IsGranted(pool, t) == \E g \in pool.grants : g[1] = t

Close(pool, t, handles) ==      \* stop evidence for what these handles were granted
  LET closed == [pool EXCEPT !.grants = @ \ ({t} \X handles)]
  IN IF IsGranted(pool, t) /\ ~IsGranted(closed, t) /\ IsLive(pool, t) /\ pool.pages[t.page].state = "DRAINING"
     THEN Free(closed, t.page) ELSE closed

RECURSIVE CloseAll(_, _, _)
CloseAll(pool, tickets, handles) ==
  IF tickets = <<>> THEN pool ELSE CloseAll(Close(pool, Head(tickets), handles), Tail(tickets), handles)

Retire(books, t) ==             \* the page goes back to the allocator, or drains
  LET page == books.pool.pages[t.page]
      stale == ~IsLive(books.pool, t)
  IN IF IsGranted(books.pool, t) /\ DrainBeforeFree
     THEN IF ~stale /\ page.state \in {"PRIVATE", "SHARED", "DUP"}
          THEN [books EXCEPT !.pool.pages[t.page].state = "DRAINING"]
          ELSE books
     ELSE IF stale /\ ControlCarriesGeneration
     THEN books
     ELSE [pool |-> Free(books.pool, t.page),
           strays |-> IF stale /\ page.state # "FREE"
                      THEN books.strays \cup {Stray("release", t.request, t.attempt, page.request)}
                      ELSE books.strays]

Release(books, t) ==            \* a holder is done with it: a reference less, or the page's end
  IF ~IsShared(books.pool, t) THEN Retire(books, t)
  ELSE LET dropped == [books EXCEPT !.pool.pages[t.page].readers = @ \ {<<t.request, t.attempt>>}]
           page == dropped.pool.pages[t.page]
       IN IF page.state = "SHARED" \/ page.readers # {} THEN dropped ELSE Retire(dropped, t)

RECURSIVE ReleaseAll(_, _)
ReleaseAll(books, tickets) ==
  IF tickets = <<>> THEN books ELSE ReleaseAll(Release(books, Head(tickets)), Tail(tickets))

ReleaseOrdered(books, tickets) ==   \* shared pages from the back, then the others as they were taken
  ReleaseAll(books, Reverse(SelectSeq(tickets, LAMBDA t : IsShared(books.pool, t)))
                    \o SelectSeq(tickets, LAMBDA t : ~IsShared(books.pool, t)))

Expired(pool, p) ==              \* a drain runs out, and there is still no evidence
  IF QuarantineOnExpiry THEN [pool EXCEPT !.pages[p].state = "QUARANTINED"] ELSE Free(pool, p)

(* Every page is in one place, once. *)
OneBook(pool) ==
  /\ \A i, j \in 1..Len(pool.free) : i # j => pool.free[i] # pool.free[j]
  /\ \A p \in DOMAIN pool.pages : pool.pages[p].state = "FREE" <=> \E i \in 1..Len(pool.free) : pool.free[i] = p
=============================================================================

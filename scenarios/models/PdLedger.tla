------------------------------ MODULE PdLedger ------------------------------
(***************************************************************************)
(* The page ledger of prefill/decode serving with one-sided writes.        *)
(*                                                                         *)
(* Decode owns pages that prefill writes into without asking it.  A page   *)
(* is known by a ticket (page, generation), and it is FREE, PRIVATE,       *)
(* SHARED (published in the prefix cache), DUP (its content is published   *)
(* as another page), DRAINING or QUARANTINED.  Who may still write it is   *)
(* kept apart, as a set of grants.  Prefill's source pages are on a ledger *)
(* of the same rules: there the NIC is the one with the grant.             *)
(*                                                                         *)
(* A request is submitted, waits for pages, has prefill fill them chunk by *)
(* chunk, is committed when there is news of every chunk, answers, and     *)
(* ends; or it times out or is aborted at any moment before.  An ended     *)
(* request may be submitted again, as a new attempt.                       *)
(*                                                                         *)
(* Each guard is a constant: FALSE takes it away.  All on is policy        *)
(* `ledger` of racelab's reference engine, all off is `eager`.             *)
(*                                                                         *)
(* `act` names each step with its arguments, so that a counterexample says *)
(* what happened in any version of TLC.  It is no part of the VIEW.        *)
(*                                                                         *)
(* racelab/model/spec has the same transitions in Python; a test compares  *)
(* the numbers of reachable states.                                        *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  DecodePages, PrefillPages, \* how many pages each pool has
  Requests,                  \* names of requests
  AttemptsMax,               \* how often a request may be submitted
  Layers,                    \* layers of a page: each is written by a write of its own
  ChunkPages,                \* pages of a chunk
  Needs,                     \* how many pages each request needs,
  Granted,                   \* how many of them prefill fills (the others are for the answer),
  Keys,                      \* and the content keys of the first of them; <<>> for no prefix cache
  DrainBeforeFree, QuarantineOnExpiry, ControlCarriesGeneration, PublishAfterCommit,
  MayAbort, MayLose, MayDuplicate, MayFail,  \* what the environment may do
  Nobody                     \* a model value: no request, no bytes, no end

VARIABLES
  decode, prefill,  \* the pools: pages, free (a stack, its top first), grants, content (whose bytes)
  attempts,         \* each request: its attempts as decode knows them
  jobs,             \* each request: the same attempts as prefill knows them
  cache,            \* the prefix cache: which page is found under which key
  queue, waiting,   \* attempts that wait for pages, on decode and on prefill
  wire,             \* writes that are posted and have not landed
  net,              \* messages that are sent and have not arrived
  strays,           \* history: what took effect after that which it was for had ended
  act               \* the step just taken

state == <<decode, prefill, attempts, jobs, cache, queue, waiting, wire, net, strays>>
vars == <<state, act>>

(* For configurations, which can only name a function. *)
OneEach == [r \in Requests |-> 1]
TwoEach == [r \in Requests |-> 2]
NoKeys == [r \in Requests |-> <<>>]
SameKey == [r \in Requests |-> <<"k">>]
OwnKey == [r \in Requests |-> <<r>>]

NoChunk == -1
LayerSet == 0..(Layers - 1)
Ticket(p, g, r, a) == [page |-> p, gen |-> g, request |-> r, attempt |-> a]
FreePage(gen) == [state |-> "FREE", gen |-> gen, request |-> Nobody, attempt |-> 0, readers |-> {}]
Message(type, r, a, chunk, ok, pages) ==
  [type |-> type, request |-> r, attempt |-> a, chunk |-> chunk, ok |-> ok, pages |-> pages]
Stray(what, r, a, owner) == [what |-> what, request |-> r, attempt |-> a, owner |-> owner]

NewAttempt == [tickets |-> <<>>, hits |-> 0, reserved |-> FALSE, missing |-> {},
               committed |-> FALSE, running |-> FALSE, ended |-> Nobody]
NewJob == [stage |-> "none", first |-> 0, pages |-> <<>>, sources |-> <<>>, posted |-> 0,
           outstanding |-> {}, done |-> {}, failed |-> {}, aborted |-> FALSE, released |-> FALSE]

NewPool(count) ==
  [pages |-> [p \in 0..(count - 1) |-> FreePage(0)],
   free |-> [i \in 1..count |-> i - 1],
   grants |-> {},
   content |-> [p \in 0..(count - 1) |-> [l \in LayerSet |-> Nobody]]]

Init ==
  /\ decode = NewPool(DecodePages)
  /\ prefill = NewPool(PrefillPages)
  /\ attempts = [r \in Requests |-> <<>>]
  /\ jobs = [r \in Requests |-> <<>>]
  /\ cache = {}
  /\ queue = <<>> /\ waiting = <<>>
  /\ wire = {} /\ net = {} /\ strays = {}
  /\ act = [name |-> "Init", request |-> Nobody, attempt |-> 0, part |-> 0, page |-> 0, taken |-> {}, found |-> 0]

(* `part` counts the chunks that are written, from 0; `taken` and `found`  *)
(* are what an admission takes from the allocator and had from the cache.  *)
DidTake(name, r, a, taken, found) ==
  act' = [name |-> name, request |-> r, attempt |-> a, part |-> 0, page |-> 0, taken |-> taken, found |-> found]
Did(name, r, a, part, page) ==
  act' = [name |-> name, request |-> r, attempt |-> a, part |-> part, page |-> page, taken |-> {}, found |-> 0]
Part(r, a, chunk) == IF chunk = -1 THEN 0 ELSE chunk - (jobs[r][a].first \div ChunkPages)

Without(seq, entry) == SelectSeq(seq, LAMBDA e : e # entry)
Reverse(seq) == [i \in 1..Len(seq) |-> seq[Len(seq) + 1 - i]]
Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a < b THEN b ELSE a
ChunkCount(r) == (Granted[r] + ChunkPages - 1) \div ChunkPages
ChunkOf(index) == index \div ChunkPages
OfChunk(r, chunk, first) ==     \* the indices of a chunk's pages, from `first` on
  Max(chunk * ChunkPages, first)..(Min((chunk + 1) * ChunkPages, Granted[r]) - 1)

-----------------------------------------------------------------------------
(* The ledger.  These take a pool, or a pool with the strays so far, and   *)
(* give what it becomes.                                                   *)

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

Close(pool, t) ==               \* stop evidence for one grant
  IF t \notin pool.grants THEN pool
  ELSE LET closed == [pool EXCEPT !.grants = @ \ {t}]
       IN IF IsLive(pool, t) /\ pool.pages[t.page].state = "DRAINING" THEN Free(closed, t.page) ELSE closed

RECURSIVE CloseAll(_, _)
CloseAll(pool, tickets) ==
  IF tickets = <<>> THEN pool ELSE CloseAll(Close(pool, Head(tickets)), Tail(tickets))

Retire(books, t) ==             \* the page goes back to the allocator, or drains
  LET page == books.pool.pages[t.page]
      stale == ~IsLive(books.pool, t)
  IN IF t \in books.pool.grants /\ DrainBeforeFree
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

ReleaseDecode(books, tickets) ==    \* shared pages from the back, then the others as they were taken
  ReleaseAll(books, Reverse(SelectSeq(tickets, LAMBDA t : IsShared(books.pool, t)))
                    \o SelectSeq(tickets, LAMBDA t : ~IsShared(books.pool, t)))

ExpirePage(pool, p) ==              \* a drain runs out, and there is still no evidence
  IF QuarantineOnExpiry THEN [pool EXCEPT !.pages[p].state = "QUARANTINED"] ELSE Free(pool, p)

-----------------------------------------------------------------------------
(* The prefix cache of decode.                                             *)

Published(key) == {e \in cache : e.key = key}
HitCount(r) ==      \* how many of the first pages of the prompt are published
  LET known == {n \in 0..Len(Keys[r]) : \A i \in 1..n : Published(Keys[r][i]) # {}}
  IN CHOOSE n \in known : \A m \in known : m <= n
Hit(r, i) == (CHOOSE e \in Published(Keys[r][i]) : TRUE).ticket
Unread == {p \in DOMAIN decode.pages : decode.pages[p].state = "SHARED" /\ decode.pages[p].readers = {}}
IsFirst(r, a) == queue # <<>> /\ Head(queue) = <<r, a>>
Held(r, a) == Len(attempts[r][a].tickets)
Lacking == IF queue = <<>> THEN 0      \* how many more pages than are free the first in the queue needs
           ELSE LET r == Head(queue)[1] IN Needs[r] - Held(r, Head(queue)[2]) - Len(decode.free)

RECURSIVE Publish(_, _, _)
Publish(got, keys, tickets) ==      \* what is published already stays; what is known becomes DUP
  IF keys = <<>> \/ tickets = <<>> THEN got
  ELSE LET t == Head(tickets)
           known == \E e \in got.cache : e.key = Head(keys)
           shared == [got.pool EXCEPT !.pages[t.page].state = IF known THEN "DUP" ELSE "SHARED",
                                      !.pages[t.page].readers = {<<t.request, t.attempt>>}]
           entry == [key |-> Head(keys), ticket |-> t]
           next == IF IsShared(got.pool, t) THEN got
                   ELSE [pool |-> shared, cache |-> IF known THEN got.cache ELSE got.cache \cup {entry}]
       IN Publish(next, Tail(keys), Tail(tickets))

Join(r, a) ==       \* references to what the cache has of the prompt, if there is room for the rest
  LET count == HitCount(r)
      hits == {Hit(r, i).page : i \in 1..count}
      tickets == [i \in 1..count |-> Ticket(Hit(r, i).page, Hit(r, i).gen, r, a)]
  IN /\ IsFirst(r, a) /\ Held(r, a) = 0 /\ count > 0
     /\ Len(decode.free) + Cardinality(Unread \ hits) >= Needs[r] - count
     /\ decode' = [decode EXCEPT !.pages = [p \in DOMAIN @ |->
          IF p \in hits THEN [@[p] EXCEPT !.readers = @ \cup {<<r, a>>}] ELSE @[p]]]
     /\ attempts' = [attempts EXCEPT ![r][a].tickets = tickets]
     /\ Did("Join", r, a, 0, 0)
     /\ UNCHANGED <<prefill, jobs, cache, queue, waiting, wire, net, strays>>

Evict(p) ==         \* a page that nobody reads makes room for the first in the queue
  /\ p \in Unread /\ Lacking > 0
  /\ Held(Head(queue)[1], Head(queue)[2]) > 0 \/ HitCount(Head(queue)[1]) = 0
  /\ \E e \in cache :
       /\ e.ticket.page = p
       /\ cache' = cache \ {e}
       /\ LET books == Retire([pool |-> decode, strays |-> strays], e.ticket)
          IN decode' = books.pool /\ strays' = books.strays
       /\ Did("Evict", e.ticket.request, e.ticket.attempt, 0, p)
  /\ UNCHANGED <<prefill, attempts, jobs, queue, waiting, wire, net>>

Unjoin(r, a) ==     \* what was evicted drains, so there is no room after all
  /\ IsFirst(r, a) /\ Held(r, a) > 0 /\ Unread = {} /\ Lacking > 0
  /\ LET books == ReleaseAll([pool |-> decode, strays |-> strays], Reverse(attempts[r][a].tickets))
     IN decode' = books.pool /\ strays' = books.strays
  /\ attempts' = [attempts EXCEPT ![r][a].tickets = <<>>]
  /\ Did("Unjoin", r, a, 0, 0)
  /\ UNCHANGED <<prefill, jobs, cache, queue, waiting, wire, net>>

-----------------------------------------------------------------------------
(* Decode.                                                                 *)

Submit(r) ==
  LET newest == Len(attempts[r])
  IN /\ newest < AttemptsMax
     /\ newest > 0 => attempts[r][newest].ended # Nobody
     /\ attempts' = [attempts EXCEPT ![r] = Append(@, NewAttempt)]
     /\ jobs' = [jobs EXCEPT ![r] = Append(@, NewJob)]
     /\ queue' = Append(queue, <<r, newest + 1>>)
     /\ Did("Submit", r, newest + 1, 0, 0)
     /\ UNCHANGED <<decode, prefill, cache, waiting, wire, net, strays>>

(* The KV of an attempt is taken as complete: others may find it, and      *)
(* attention reads it.                                                     *)
Commit(got, attempt, r, a) ==
  LET published == Publish([pool |-> got.pool, cache |-> got.cache], Keys[r], attempt.tickets)
  IN [pool |-> published.pool, cache |-> published.cache,
      attempt |-> [attempt EXCEPT !.committed = TRUE, !.running = TRUE],
      sent |-> IF attempt.reserved THEN {Message("complete", r, a, NoChunk, TRUE, <<>>)} ELSE {}]

Admit(r, a) ==      \* the first in the queue takes its pages, and grants prefill those that it shall fill
  LET hits == Held(r, a)
  IN /\ IsFirst(r, a)
     /\ Len(decode.free) >= Needs[r] - hits
     /\ hits > 0 \/ HitCount(r) = 0
     /\ LET got == Take([pool |-> decode, tickets |-> attempts[r][a].tickets], Needs[r] - hits, r, a)
            granted == SubSeq(got.tickets, hits + 1, Granted[r])
            pool == [got.pool EXCEPT !.grants = @ \cup {granted[i] : i \in 1..Len(granted)}]
            early == IF PublishAfterCommit THEN [pool |-> pool, cache |-> cache]
                     ELSE Publish([pool |-> pool, cache |-> cache], Keys[r], got.tickets)
            missing == (hits \div ChunkPages)..(ChunkCount(r) - 1)
            attempt == [NewAttempt EXCEPT !.tickets = got.tickets, !.hits = hits]
        IN
        /\ IF granted = <<>>
           THEN LET done == Commit(early, attempt, r, a)
                IN /\ decode' = done.pool /\ cache' = done.cache
                   /\ attempts' = [attempts EXCEPT ![r][a] = done.attempt]
                   /\ net' = net \cup done.sent
           ELSE /\ decode' = early.pool /\ cache' = early.cache
                /\ attempts' = [attempts EXCEPT ![r][a] = [attempt EXCEPT !.missing = missing, !.reserved = TRUE]]
                /\ net' = net \cup {Message("reserve", r, a, NoChunk, TRUE, granted)}
        /\ DidTake("Admit", r, a, {got.tickets[i].page : i \in (hits + 1)..Needs[r]}, hits)
     /\ queue' = Tail(queue)
     /\ UNCHANGED <<prefill, jobs, waiting, wire, strays>>

(* The request ends now; its pages go the way that the guards allow.       *)
Ended(pool, marks, attempt, how) ==
  [books |-> ReleaseDecode([pool |-> pool, strays |-> marks], attempt.tickets),
   attempt |-> [attempt EXCEPT !.ended = how, !.running = FALSE]]
AbortMessage(attempt, r, a) ==
  IF attempt.reserved /\ ~attempt.committed THEN {Message("abort", r, a, NoChunk, TRUE, <<>>)} ELSE {}

End(r, a, name, how) ==
  LET attempt == attempts[r][a]
      ended == Ended(decode, strays, attempt, how)
  IN /\ decode' = ended.books.pool /\ strays' = ended.books.strays
     /\ attempts' = [attempts EXCEPT ![r][a] = ended.attempt]
     /\ queue' = Without(queue, <<r, a>>)
     /\ net' = net \cup AbortMessage(attempt, r, a)
     /\ Did(name, r, a, 0, 0)
     /\ UNCHANGED <<prefill, jobs, cache, waiting, wire>>

IsOpen(r, a) == a = Len(attempts[r]) /\ attempts[r][a].ended = Nobody
TimeOut(r, a) == IsOpen(r, a) /\ End(r, a, "TimeOut", "timed-out")
Abort(r, a) == IsOpen(r, a) /\ End(r, a, "Abort", "aborted")
Finish(r, a) == attempts[r][a].running /\ End(r, a, "Finish", "finished")

(* News of a chunk: stop evidence for its pages if they are written, and   *)
(* progress of the newest attempt, if it is this one or no guard asks.     *)
ReceiveWritten(m, left) ==
  LET r == m.request
      a == Len(attempts[r])
      attempt == attempts[r][a]
      pool == IF m.ok THEN CloseAll(decode, m.pages) ELSE decode
      own == a = m.attempt /\ attempt.ended = Nobody
      acts == own \/ (~ControlCarriesGeneration /\ attempt.reserved)
      marks == IF acts /\ ~own THEN strays \cup {Stray("message", r, m.attempt, r)} ELSE strays
      less == [attempt EXCEPT !.missing = @ \ {m.chunk}]
  IN /\ IF ~acts
        THEN decode' = pool /\ strays' = marks /\ net' = left /\ UNCHANGED <<attempts, cache, queue>>
        ELSE IF ~m.ok
        THEN LET ended == Ended(pool, marks, attempt, "failed")
             IN /\ decode' = ended.books.pool /\ strays' = ended.books.strays
                /\ attempts' = [attempts EXCEPT ![r][a] = ended.attempt]
                /\ queue' = Without(queue, <<r, a>>)
                /\ net' = left \cup AbortMessage(attempt, r, a)
                /\ UNCHANGED cache
        ELSE IF less.missing = {} /\ ~attempt.committed
        THEN LET done == Commit([pool |-> pool, cache |-> cache], less, r, a)
             IN /\ decode' = done.pool /\ cache' = done.cache
                /\ attempts' = [attempts EXCEPT ![r][a] = done.attempt]
                /\ net' = left \cup done.sent
                /\ strays' = marks /\ UNCHANGED queue
        ELSE /\ attempts' = [attempts EXCEPT ![r][a] = less]
             /\ decode' = pool /\ strays' = marks /\ net' = left
             /\ UNCHANGED <<cache, queue>>
     /\ UNCHANGED <<prefill, jobs, waiting, wire>>

(* Prefill posts no more; if all its writes succeeded, nothing of it can   *)
(* land any more.                                                          *)
ReceiveAck(m, left) ==
  /\ decode' = IF m.ok THEN CloseAll(decode, m.pages) ELSE decode
  /\ net' = left
  /\ UNCHANGED <<prefill, attempts, jobs, cache, queue, waiting, wire, strays>>

-----------------------------------------------------------------------------
(* Prefill.                                                                *)

ReceiveReserve(m, left) ==      \* a second copy changes nothing
  LET r == m.request
      a == m.attempt
      first == Granted[r] - Len(m.pages)
      job == [NewJob EXCEPT !.stage = "waiting", !.first = first, !.pages = m.pages,
                            !.posted = first \div ChunkPages]
  IN /\ IF jobs[r][a].stage = "none"
        THEN jobs' = [jobs EXCEPT ![r][a] = job] /\ waiting' = Append(waiting, <<r, a>>)
        ELSE UNCHANGED <<jobs, waiting>>
     /\ net' = left
     /\ UNCHANGED <<decode, prefill, attempts, cache, queue, wire, strays>>

Accept(r, a) ==
  /\ waiting # <<>> /\ Head(waiting) = <<r, a>>
  /\ Len(prefill.free) >= Granted[r]
  /\ LET got == Take([pool |-> prefill, tickets |-> <<>>], Granted[r], r, a)
     IN /\ prefill' = got.pool
        /\ jobs' = [jobs EXCEPT ![r][a].stage = "accepted", ![r][a].sources = got.tickets]
  /\ waiting' = Tail(waiting)
  /\ Did("Accept", r, a, 0, 0)
  /\ UNCHANGED <<decode, attempts, cache, queue, wire, net, strays>>

(* The chunk's KV is computed into its source pages, and its writes are    *)
(* posted: from now on they cannot be called back.                         *)
Post(r, a, chunk) ==
  LET job == jobs[r][a]
      indices == OfChunk(r, chunk, job.first)
      Source(i) == job.sources[i + 1]
      Target(i) == job.pages[i - job.first + 1]
      filled == {Source(i).page : i \in indices}
      IndexAt(p) == CHOOSE i \in indices : Source(i).page = p
  IN /\ job.stage = "accepted" /\ ~job.released /\ job.posted = chunk /\ chunk < ChunkCount(r)
     /\ prefill' = [prefill EXCEPT
          !.grants = @ \cup {Source(i) : i \in indices},
          !.content = [p \in DOMAIN @ |-> IF p \in filled
             THEN [l \in LayerSet |-> [request |-> r, attempt |-> a, index |-> IndexAt(p)]] ELSE @[p]]]
     /\ wire' = wire \cup {[request |-> r, attempt |-> a, index |-> i, layer |-> l,
                            page |-> Target(i).page, gen |-> Target(i).gen,
                            source |-> Source(i).page, sourceGen |-> Source(i).gen] : i \in indices, l \in LayerSet}
     /\ jobs' = [jobs EXCEPT ![r][a].posted = chunk + 1, ![r][a].outstanding = @ \cup (indices \X LayerSet)]
     /\ Did("Post", r, a, Part(r, a, chunk), 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, net, strays>>

OfJob(job, r, chunk) ==         \* the pages of a chunk that prefill was asked to fill
  LET indices == OfChunk(r, chunk, job.first)
  IN [i \in 1..Cardinality(indices) |-> job.pages[Max(chunk * ChunkPages, job.first) - job.first + i]]
Written(job, r, a, chunk) == Message("written", r, a, chunk, chunk \notin job.failed, OfJob(job, r, chunk))
Acknowledged(job, r, a) == Message("abort-ack", r, a, NoChunk, job.failed = {}, job.pages)

(* The transport is done with some writes of one chunk.  Only success says *)
(* that they have landed.                                                  *)
Complete(r, a, done, ok) ==
  LET old == jobs[r][a]
      chunk == ChunkOf((CHOOSE w \in done : TRUE)[1])
      job == [old EXCEPT !.outstanding = @ \ done,
                         !.done = IF ok THEN @ \cup done ELSE @,
                         !.failed = IF ok THEN @ ELSE @ \cup {chunk}]
      whole == SelectSeq([i \in 1..Granted[r] |-> i - 1],
                         LAMBDA i : (\E w \in done : w[1] = i) /\ \A l \in LayerSet : <<i, l>> \in job.done)
  IN /\ done # {} /\ done \subseteq old.outstanding
     /\ \A w \in done : ChunkOf(w[1]) = chunk
     /\ ok \/ MayFail
     /\ ok => ~\E w \in wire : w.request = r /\ w.attempt = a /\ <<w.index, w.layer>> \in done
     /\ jobs' = [jobs EXCEPT ![r][a] = job]
     /\ prefill' = CloseAll(prefill, [n \in 1..Len(whole) |-> job.sources[whole[n] + 1]])
     /\ net' = net
          \cup (IF \A w \in job.outstanding : ChunkOf(w[1]) # chunk THEN {Written(job, r, a, chunk)} ELSE {})
          \cup (IF job.aborted /\ job.outstanding = {} THEN {Acknowledged(job, r, a)} ELSE {})
     /\ Did(IF ok THEN "Complete" ELSE "Fail", r, a, Part(r, a, chunk), 0)
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, wire, strays>>

(* Prefill is done with an attempt; its source pages go.                   *)
LetGo(job, left) ==
  IF job.released THEN prefill' = prefill /\ strays' = strays
  ELSE LET books == ReleaseAll([pool |-> prefill, strays |-> strays], job.sources)
       IN prefill' = books.pool /\ strays' = books.strays

ReceiveAbort(m, left) ==
  LET r == m.request
      a == m.attempt
      job == jobs[r][a]
  IN /\ IF job.stage = "none"
        THEN net' = left /\ UNCHANGED <<prefill, jobs, waiting, strays>>
        ELSE /\ LetGo(job, left)
             /\ jobs' = [jobs EXCEPT ![r][a].aborted = TRUE, ![r][a].released = TRUE]
             /\ waiting' = Without(waiting, <<r, a>>)
             /\ net' = left \cup (IF job.outstanding = {} THEN {Acknowledged(job, r, a)} ELSE {})
     /\ UNCHANGED <<decode, attempts, cache, queue, wire>>

ReceiveComplete(m, left) ==
  LET r == m.request
      a == m.attempt
  IN /\ IF jobs[r][a].stage = "none"
        THEN UNCHANGED <<prefill, jobs, strays>>
        ELSE LetGo(jobs[r][a], left) /\ jobs' = [jobs EXCEPT ![r][a].released = TRUE]
     /\ net' = left
     /\ UNCHANGED <<decode, attempts, cache, queue, waiting, wire>>

-----------------------------------------------------------------------------
(* What nobody decides.                                                    *)

Handle(m, left) ==
  CASE m.type = "reserve" -> ReceiveReserve(m, left)
    [] m.type = "abort" -> ReceiveAbort(m, left)
    [] m.type = "complete" -> ReceiveComplete(m, left)
    [] m.type = "written" -> ReceiveWritten(m, left)
    [] m.type = "abort-ack" -> ReceiveAck(m, left)

Happened(name, m) == Did(name, m.request, m.attempt, Part(m.request, m.attempt, m.chunk), 0)

Receive(m) == m \in net /\ Handle(m, net \ {m}) /\ Happened("Receive-" \o m.type, m)
ReceiveCopy(m) ==               \* it arrives, and will once more
  m \in net /\ MayDuplicate /\ Handle(m, net) /\ Happened("ReceiveCopy-" \o m.type, m)

Lose(m) ==
  /\ m \in net /\ MayLose
  /\ net' = net \ {m}
  /\ Happened("Lose-" \o m.type, m)
  /\ UNCHANGED <<decode, prefill, attempts, jobs, cache, queue, waiting, wire, strays>>

Flying(w) ==                    \* the writes of the same chunk that have not landed
  {v \in wire : v.request = w.request /\ v.attempt = w.attempt /\ ChunkOf(v.index) = ChunkOf(w.index)}
IsFirstToLand(w) ==
  Cardinality(Flying(w)) =
    Layers * Cardinality(OfChunk(w.request, ChunkOf(w.index), jobs[w.request][w.attempt].first))

(* A write lands wherever its address points, with whatever its source     *)
(* holds by then: nobody is asked.  A schedule lets all writes of a chunk  *)
(* go where the first lands, so that the others have a name of their own.  *)
Land(w) ==
  LET source == prefill.pages[w.source]
      target == decode.pages[w.page]
      late(what, page, gen) == IF page.gen = gen /\ page.state # "FREE" THEN {}
                               ELSE {Stray(what, w.request, w.attempt, page.request)}
  IN /\ w \in wire
     /\ wire' = wire \ {w}
     /\ decode' = [decode EXCEPT !.content[w.page][w.layer] = prefill.content[w.source][w.layer]]
     /\ strays' = strays \cup late("source", source, w.sourceGen) \cup late("write", target, w.gen)
     /\ Did(IF IsFirstToLand(w) THEN "Land" ELSE "LandPart", w.request, w.attempt, Part(w.request, w.attempt, ChunkOf(w.index)), w.page)
     /\ UNCHANGED <<prefill, attempts, jobs, cache, queue, waiting, net>>

Vanish(w) ==                    \* a write whose completion was an error never lands after all
  /\ w \in wire /\ <<w.index, w.layer>> \notin jobs[w.request][w.attempt].outstanding
  /\ wire' = wire \ {w}
  /\ Did("Vanish", w.request, w.attempt, Part(w.request, w.attempt, ChunkOf(w.index)), w.page)
  /\ UNCHANGED <<decode, prefill, attempts, jobs, cache, queue, waiting, net, strays>>

ExpireDecode(p) ==
  /\ decode.pages[p].state = "DRAINING"
  /\ decode' = ExpirePage(decode, p)
  /\ Did("Expire", decode.pages[p].request, decode.pages[p].attempt, 0, p)
  /\ UNCHANGED <<prefill, attempts, jobs, cache, queue, waiting, wire, net, strays>>

ExpirePrefill(p) ==
  /\ prefill.pages[p].state = "DRAINING"
  /\ prefill' = ExpirePage(prefill, p)
  /\ Did("ExpireSource", prefill.pages[p].request, prefill.pages[p].attempt, 0, p)
  /\ UNCHANGED <<decode, attempts, jobs, cache, queue, waiting, wire, net, strays>>

-----------------------------------------------------------------------------
(* Every request has ended, and no page drains.                            *)
Terminal ==
  /\ \A r \in Requests : \A a \in DOMAIN attempts[r] : attempts[r][a].ended # Nobody /\ ~attempts[r][a].running
  /\ \A p \in DOMAIN decode.pages : decode.pages[p].state # "DRAINING"
  /\ \A p \in DOMAIN prefill.pages : prefill.pages[p].state # "DRAINING"

Outstanding(r, a, chunk) == {w \in jobs[r][a].outstanding : ChunkOf(w[1]) = chunk}

Progress ==         \* what happens some day if it stays possible
  \/ \E r \in Requests : \E a \in DOMAIN attempts[r] :
       \/ Join(r, a) \/ Unjoin(r, a) \/ Admit(r, a) \/ Accept(r, a)
       \/ TimeOut(r, a) \/ Finish(r, a)
       \/ \E chunk \in 0..(ChunkCount(r) - 1) :
            \/ Post(r, a, chunk)
            \/ \E ok \in BOOLEAN : Complete(r, a, Outstanding(r, a, chunk), ok)
  \/ \E m \in net : Receive(m)
  \/ \E w \in wire : Land(w) \/ Vanish(w)
  \/ \E p \in DOMAIN decode.pages : Evict(p) \/ ExpireDecode(p)
  \/ \E p \in DOMAIN prefill.pages : ExpirePrefill(p)

Chance ==           \* what may never happen
  \/ \E r \in Requests : Submit(r)
  \/ MayAbort /\ \E r \in Requests : \E a \in DOMAIN attempts[r] : Abort(r, a)
  \/ \E m \in net : ReceiveCopy(m) \/ Lose(m)

Rest == Terminal /\ UNCHANGED vars     \* all work may be done: that is no deadlock

Next == Progress \/ Chance \/ Rest
Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Progress)

-----------------------------------------------------------------------------
(* Nothing takes effect after the generation or the attempt that it was    *)
(* for has ended.  What is still in the network is exposure, no violation. *)
Isolation == strays = {}

(* The graver half: no write lands on a page that is another request's.    *)
NoLateWriteOnReusedPage == \A s \in strays : s.what = "write" => s.owner = Nobody

KeyOf(content) ==
  IF content = Nobody THEN Nobody
  ELSE IF content.index + 1 <= Len(Keys[content.request]) THEN Keys[content.request][content.index + 1] ELSE Nobody

(* Whoever reads holds the pages, and they have its own bytes or, where    *)
(* they were found in the cache, bytes of the same key.                    *)
RightReads == \A r \in Requests : \A a \in DOMAIN attempts[r] : attempts[r][a].running =>
  \A i \in 1..Granted[r] :
    LET t == attempts[r][a].tickets[i]
        page == decode.pages[t.page]
    IN /\ page.gen = t.gen
       /\ page.state \in {"PRIVATE", "SHARED", "DUP"}
       /\ \A l \in LayerSet :
            \/ decode.content[t.page][l] = [request |-> r, attempt |-> a, index |-> i - 1]
            \/ i <= attempts[r][a].hits /\ KeyOf(decode.content[t.page][l]) = Keys[r][i]

(* What is found in the cache is alive and has the bytes of its key.       *)
RightCache == \A e \in cache :
  LET page == decode.pages[e.ticket.page]
  IN /\ page.gen = e.ticket.gen
     /\ page.state = "SHARED"
     /\ \A l \in LayerSet : KeyOf(decode.content[e.ticket.page][l]) = e.key

Integrity == RightReads /\ RightCache

(* Every page is in one place, once; and none is free while an access      *)
(* under its last grant can take effect.                                   *)
OneBook(pool) ==
  /\ \A i, j \in 1..Len(pool.free) : i # j => pool.free[i] # pool.free[j]
  /\ \A p \in DOMAIN pool.pages : pool.pages[p].state = "FREE" <=> \E i \in 1..Len(pool.free) : pool.free[i] = p
Conservation ==
  /\ OneBook(decode) /\ OneBook(prefill)
  /\ \A w \in wire :
       /\ decode.pages[w.page].gen = w.gen => decode.pages[w.page].state # "FREE"
       /\ prefill.pages[w.source].gen = w.sourceGen => prefill.pages[w.source].state # "FREE"

(* Of FairSpec: from wherever things stand, all of it ends.                *)
Finality == []<>Terminal
=============================================================================

------------------------------ MODULE PdDecode ------------------------------
(***************************************************************************)
(* What decode does in PdLedger: its prefix cache, the admission of        *)
(* requests, their ends, and what it makes of prefill's messages.          *)
(***************************************************************************)
EXTENDS PdState

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
CanSubmit(r) ==
  /\ Len(attempts[r]) < AttemptsMax
  /\ Len(attempts[r]) > 0 => attempts[r][Len(attempts[r])].ended # Nobody

(* Whoever comes with a transfer id that is in use takes it over, unless   *)
(* the guard has it fail.                                                  *)
Submit(r) ==
  LET a == Len(attempts[r]) + 1
      holders == {e \in decode.rooms : e[1] = Room[r]}
      inUse == \E e \in holders : attempts[e[2]][e[3]].ended = Nobody
      refused == inUse /\ Guarded("unique-transfer-id")
  IN /\ ~Pulls /\ CanSubmit(r)
     /\ attempts' = [attempts EXCEPT ![r] = Append(@, [NewAttempt EXCEPT !.ended = IF refused THEN "failed" ELSE Nobody])]
     /\ jobs' = [jobs EXCEPT ![r] = Append(@, NewJob)]
     /\ queue' = IF refused THEN queue ELSE Append(queue, <<r, a>>)
     /\ decode' = IF refused \/ Room[r] = Nobody THEN decode
                  ELSE [decode EXCEPT !.rooms = (@ \ holders) \cup {<<Room[r], r, a>>}]
     /\ Did(IF Routed THEN "Request" ELSE "Submit", r, a, 0, 0)
     /\ UNCHANGED <<prefill, cache, waiting, wire, net, strays>>

Word2(type, r, a, ok, ref) == Message(type, r, a, NoChunk, 0, ok, ref)     \* to whoever has the pages of a reference

Answering == \E r \in Requests : \E a \in DOMAIN attempts[r] : attempts[r][a].running
WaitsItsTurn(attempt) == attempt.committed /\ attempt.ended = Nobody /\ ~attempt.running
Idle == ~Answering /\ \A r \in Requests : \A a \in DOMAIN attempts[r] : ~WaitsItsTurn(attempts[r][a])

(* The KV of an attempt is taken as complete: others may find it, and      *)
(* attention reads it, unless the batch is full.  Its first token is the   *)
(* word that is in its slot.                                               *)
Commit(got, attempt, r, a) ==
  LET published == Publish([pool |-> got.pool, cache |-> got.cache], Keys[r], attempt.tickets)
      looks == attempt.slot # NoSlot /\ attempt.reserved /\ attempt.ended = Nobody
      word == got.pool.slots[attempt.slot]
      wrong == looks /\ word # [request |-> r, attempt |-> a] /\ ~Guarded("slot-carries-owner")
  IN [marks |-> IF wrong THEN {Stray("slot", r, a, IF word = Nobody THEN Nobody ELSE word.request)} ELSE {},
      pool |-> published.pool, cache |-> published.cache,
      attempt |-> [attempt EXCEPT !.committed = TRUE, !.running = "batch" \notin Has \/ Idle],
      sent |-> IF Pulls THEN {Word2("complete", r, a, TRUE, attempt.ref)}
               ELSE IF attempt.reserved THEN {Word("complete", r, a)} ELSE {}]

Fresh(r, attempt) ==            \* the pages that prefill shall fill
  IF attempt.tickets = <<>> THEN <<>> ELSE SubSeq(attempt.tickets, attempt.hits + 1, Granted[r])
Advertised(pool, r, attempt) == Grant(pool, Fresh(r, attempt), IF Pulls THEN Nic ELSE RankSet)
Reads(r, a, attempt) ==     \* what decode reads itself
  {[request |-> r, attempt |-> a, index |-> i, layer |-> l, epoch |-> prefill.epoch,
    page |-> attempt.tickets[i + 1].page, gen |-> attempt.tickets[i + 1].gen,
    source |-> attempt.ref[i + 1].page, sourceGen |-> attempt.ref[i + 1].gen]
   : i \in attempt.hits..(Granted[r] - 1), l \in LayerSet}
Reserve(r, a, attempt) == {Message("reserve", r, a, NoChunk, 0, TRUE, Fresh(r, attempt))}

(* The first in the queue takes its pages, and grants prefill those that   *)
(* it shall fill; where they are to be zeroed first, the guard has the     *)
(* addresses wait for that.  Where it pulls, it reads them itself.         *)
Admit(r, a) ==
  LET hits == Held(r, a)
      got == Take([pool |-> decode, tickets |-> attempts[r][a].tickets], Needs[r] - hits, r, a)
      missing == ((hits \div ChunkPages)..(ChunkCount(r) - 1)) \X RankSet     \* of these news is due
      whole == hits = Granted[r]
      filled == whole \/ "late-fill" \notin Has
      told == ~whole /\ (filled \/ ~Guarded("local-work-before-grant"))
      news == IF whole \/ Pulls THEN {} ELSE missing
      attempt == [attempts[r][a] EXCEPT !.tickets = got.tickets, !.hits = hits, !.peer = decode.epoch,
                    !.missing = news, !.due = Cardinality(OfKv(news)),
                    !.reserved = told /\ ~Pulls, !.filled = filled,
                    !.slot = IF Slots = 0 THEN NoSlot ELSE Head(decode.spare),
                    !.reading = IF whole \/ ~Pulls THEN {} ELSE (hits..(Granted[r] - 1)) \X LayerSet,
                    !.registered = whole \/ "late-register" \notin Has \/ Guarded("register-before-send")]
      seated == IF Slots = 0 THEN got.pool ELSE [got.pool EXCEPT !.spare = Tail(@)]
      pool == IF told THEN Advertised(seated, r, attempt) ELSE seated
      early == IF Guarded("publish-after-commit") \/ ~(told \/ whole) THEN [pool |-> pool, cache |-> cache]
               ELSE Publish([pool |-> pool, cache |-> cache], Keys[r], got.tickets)
  IN /\ IsFirst(r, a)
     /\ Len(decode.free) >= Needs[r] - hits
     /\ Slots > 0 => decode.spare # <<>>
     /\ hits > 0 \/ HitCount(r) = 0
     /\ wire' = wire \cup (IF whole \/ ~Pulls THEN {} ELSE Reads(r, a, attempt))
     /\ IF whole
        THEN LET done == Commit(early, attempt, r, a)
             IN /\ decode' = done.pool /\ cache' = done.cache
                /\ attempts' = [attempts EXCEPT ![r][a] = done.attempt]
                /\ net' = net \cup done.sent
        ELSE /\ decode' = early.pool /\ cache' = early.cache
             /\ attempts' = [attempts EXCEPT ![r][a] = attempt]
             /\ net' = IF told /\ ~Pulls THEN net \cup Reserve(r, a, attempt) ELSE net
     /\ queue' = Tail(queue)
     /\ DidTake(IF Pulls \/ Routed THEN "Begin" ELSE "Admit", r, a, {got.tickets[i].page : i \in (hits + 1)..Needs[r]}, hits)
     /\ UNCHANGED <<prefill, jobs, waiting, strays>>

Fill(r, a) ==       \* the queued zeros are written, whatever is there by now
  LET attempt == attempts[r][a]
      pages == {t.page : t \in Range(Fresh(r, attempt))}
      zeroed == [decode EXCEPT !.content = [p \in DOMAIN @ |->
                   IF p \in pages THEN [l \in LayerSet |-> Nobody] ELSE @[p]]]
      told == [attempt EXCEPT !.filled = TRUE, !.reserved = TRUE]
      pool == IF attempt.reserved THEN zeroed ELSE Advertised(zeroed, r, told)
      early == IF Guarded("publish-after-commit") \/ attempt.reserved THEN [pool |-> pool, cache |-> cache]
               ELSE Publish([pool |-> pool, cache |-> cache], Keys[r], attempt.tickets)
  IN /\ ~attempt.filled /\ attempt.ended = Nobody
     /\ decode' = early.pool /\ cache' = early.cache
     /\ attempts' = [attempts EXCEPT ![r][a] = told]
     /\ net' = IF attempt.reserved THEN net ELSE net \cup Reserve(r, a, told)
     /\ Did("Fill", r, a, 0, 0)
     /\ UNCHANGED <<prefill, jobs, queue, waiting, wire, strays>>

Register(r, a) ==   \* from now on messages about this transfer find it
  /\ ~attempts[r][a].registered
  /\ attempts' = [attempts EXCEPT ![r][a].registered = TRUE]
  /\ Did("Register", r, a, 0, 0)
  /\ UNCHANGED <<decode, prefill, jobs, cache, queue, waiting, wire, net, strays>>

-----------------------------------------------------------------------------
(* The ends of a request; its pages go the way that the guards allow.      *)

Vacated(pool, attempt) ==       \* its slot goes to whoever comes next, with what is in it
  IF attempt.slot = NoSlot \/ attempt.ended # Nobody THEN pool ELSE [pool EXCEPT !.spare = <<attempt.slot>> \o @]
(* Who waits while another is answered is forgotten with its pages, if no  *)
(* guard minds.                                                            *)
Ended(pool, marks, attempt, how) ==
  [books |-> ReleaseOrdered([pool |-> Vacated(pool, attempt), strays |-> marks],
                            IF WaitsItsTurn(attempt) /\ Answering /\ ~Guarded("end-frees-pages") THEN <<>> ELSE attempt.tickets),
   attempt |-> [attempt EXCEPT !.ended = how, !.running = FALSE]]
Leaves(attempt, r, a) ==        \* decode reads no more of what its reference names
  IF attempt.reading = {} /\ attempt.stage # "stale" /\ Guarded("tell-peer-of-end")
  THEN {Word2("release-source", r, a, ~attempt.broken, attempt.ref)} ELSE {}
AbortMessage(attempt, r, a) ==
  IF Pulls THEN IF attempt.committed THEN {} ELSE Leaves(attempt, r, a)
  ELSE IF attempt.reserved /\ ~attempt.committed /\ Guarded("tell-peer-of-end") THEN {Word("abort", r, a)} ELSE {}

End(r, a, name, how) ==
  LET attempt == attempts[r][a]
      ended == Ended(decode, strays, attempt, how)
  IN /\ decode' = ended.books.pool /\ strays' = ended.books.strays
     /\ attempts' = [attempts EXCEPT ![r][a] = ended.attempt]
     /\ queue' = Less(queue, <<r, a>>)
     /\ net' = net \cup AbortMessage(attempt, r, a)
     /\ Did(name, r, a, 0, 0)
     /\ UNCHANGED <<prefill, jobs, cache, waiting, wire>>

IsOpen(r, a) == a = Len(attempts[r]) /\ attempts[r][a].ended = Nobody /\ attempts[r][a].stage # "away"
Waits(r, a) == IsOpen(r, a) /\ attempts[r][a].reserved /\ ~attempts[r][a].committed   \* for prefill
TimeOut(r, a) == "time-out" \in May /\ IsOpen(r, a) /\ End(r, a, "TimeOut", "timed-out")
Abort(r, a) == "abort" \in May /\ IsOpen(r, a) /\ End(r, a, "Abort", "aborted")
Enter(r, a) ==      \* its turn has come
  /\ WaitsItsTurn(attempts[r][a]) /\ ~Answering
  /\ attempts' = [attempts EXCEPT ![r][a].running = TRUE]
  /\ Did("Enter", r, a, 0, 0)
  /\ UNCHANGED <<decode, prefill, jobs, cache, queue, waiting, wire, net, strays>>
Finish(r, a) == attempts[r][a].running /\ End(r, a, "Finish", "finished")
GiveUp(r, a) ==     \* the watchdog: nothing has come for too long
  "receive-time-out" \in May /\ Guarded("receive-watchdog") /\ Waits(r, a) /\ End(r, a, "GiveUp", "failed")
Orphan(r, a) ==     \* the prefill that it was with is no more
  attempts[r][a].peer # decode.epoch /\ Waits(r, a) /\ End(r, a, "Orphan", "failed")

(* Decode's scheduler takes the pages of an attempt back, and nobody asks   *)
(* what is under way to them.  The request waits for others: as another    *)
(* attempt, or, if no guard minds, as the one that it was.                 *)
Retract(r, a) ==
  LET old == attempts[r][a]
      ended == Ended(decode, strays, old, "retracted")
      renews == Guarded("retraction-renews-attempt")
      b == IF renews THEN a + 1 ELSE a
      pool == ended.books.pool
  IN /\ "retract" \in May /\ ~Pulls /\ IsOpen(r, a)
     /\ old.tickets # <<>> /\ <<r, a>> \notin Range(queue)
     /\ Len(attempts[r]) < AttemptsMax /\ ~old.again
     /\ attempts' = [attempts EXCEPT ![r] = IF renews THEN Append([@ EXCEPT ![a] = ended.attempt], NewAttempt)
                                            ELSE [@ EXCEPT ![a] = [NewAttempt EXCEPT !.again = TRUE]]]
     /\ jobs' = IF renews THEN [jobs EXCEPT ![r] = Append(@, NewJob)] ELSE jobs
     /\ decode' = IF Room[r] = Nobody THEN pool
                  ELSE [pool EXCEPT !.rooms = {e \in @ : e[1] # Room[r]} \cup {<<Room[r], r, b>>}]
     /\ strays' = ended.books.strays
     /\ queue' = Append(queue, <<r, b>>)
     /\ net' = net \cup AbortMessage(old, r, a)
     /\ Did("Retract", r, b, 0, 0)
     /\ UNCHANGED <<prefill, cache, waiting, wire>>

(* A router has another prefill serve a request.  It begins anew, or, if no *)
(* guard minds, the other one is given the same pages: what it says is      *)
(* taken for both.  Here each has an attempt; in a system they are one.     *)
Retry(r, a) ==
  LET old == attempts[r][a]
      ended == Ended(decode, strays, old, "retried")
      anew == Guarded("retry-takes-other-pages")
      news == ((old.hits \div ChunkPages)..(ChunkCount(r) - 1)) \X RankSet
      same == [old EXCEPT !.missing = news, !.due = Cardinality(OfKv(news)), !.failed = {}]
  IN /\ "retry" \in May /\ ~Pulls /\ ~Routed /\ Slots = 0 /\ Room[r] = Nobody
     /\ Waits(r, a) /\ Len(attempts[r]) < AttemptsMax
     /\ attempts' = [attempts EXCEPT ![r] = Append(
          [@ EXCEPT ![a] = IF anew THEN ended.attempt ELSE [old EXCEPT !.ended = "retried", !.tickets = <<>>]],
          IF anew THEN NewAttempt ELSE same)]
     /\ jobs' = [jobs EXCEPT ![r] = Append(@, NewJob)]
     /\ decode' = IF anew THEN ended.books.pool ELSE Advertised(decode, r, same)
     /\ strays' = IF anew THEN ended.books.strays ELSE strays
     /\ queue' = IF anew THEN Append(queue, <<r, a + 1>>) ELSE queue
     /\ net' = net \cup AbortMessage(old, r, a) \cup (IF anew THEN {} ELSE Reserve(r, a + 1, same))
     /\ Did("Retry", r, a + 1, 0, 0)
     /\ UNCHANGED <<prefill, cache, waiting, wire>>

-----------------------------------------------------------------------------
(* What prefill says.  It says it of a transfer: to whoever has the id now.*)

Live(m) ==
  IF Room[m.request] = Nobody THEN <<m.request, Len(attempts[m.request])>>
  ELSE LET e == CHOOSE e \in decode.rooms : e[1] = Room[m.request] IN <<e[2], e[3]>>

AllThere(r, a, attempt) ==      \* whether its pages hold what prefill was asked for
  \A i \in attempt.hits..(Granted[r] - 1) : \A l \in LayerSet :
    decode.content[attempt.tickets[i + 1].page][l] = Own(r, a, i)

Fail(pool, marks, attempt, r, a, left) ==
  LET ended == Ended(pool, marks, attempt, "failed")
  IN /\ decode' = ended.books.pool /\ strays' = ended.books.strays
     /\ attempts' = [attempts EXCEPT ![r][a] = ended.attempt]
     /\ queue' = Less(queue, <<r, a>>)
     /\ net' = left \cup AbortMessage(attempt, r, a)
     /\ UNCHANGED cache

(* News of a rank's part of a chunk: stop evidence for its pages if they   *)
(* are written, and progress of the newest attempt, if it is this one or   *)
(* no guard asks.  With the last news of KV that is due, or the first of a *)
(* failure, it is decided whether the transfer is complete: scales count   *)
(* for it if the guard is there.                                           *)
ReceiveWritten(m, left) ==
  LET r == Live(m)[1]
      a == Live(m)[2]
      own == Live(m) = <<m.request, m.attempt>> /\ attempts[r][a].ended = Nobody
      acts == attempts[r][a].reserved /\ (own \/ ~ControlCarriesGeneration)
      short == m.request \in TooLong
      attempt == [attempts[r][a] EXCEPT !.missing = IF short THEN {} ELSE @ \ {<<m.chunk, m.rank>>},
                                        !.due = IF m.rank \in KvRanks THEN Max(0, @ - 1) ELSE @,
                                        !.failed = IF m.ok THEN @ ELSE @ \cup {<<m.chunk, m.rank>>}]
      last == attempt.due = 0 \/ short
      asked == ~attempt.committed /\ (last \/ ~m.ok)
      refused ==
        \/ Guarded("commit-when-whole") /\ OfKv(attempt.failed \cup attempt.missing) # {}
        \/ Guarded("lengths-agree") /\ short
        \/ Guarded("bytes-before-commit") /\ "answer-early" \in May /\ ~AllThere(r, a, attempt)
      badKv == OfKv(attempt.failed) # {}
      badScales == attempt.failed # OfKv(attempt.failed)
      apart == Guarded("commit-together") /\ (badScales \/ attempt.missing # OfKv(attempt.missing))
      fails == asked /\ IF refused THEN badKv \/ short \/ OfKv(attempt.missing) = {} ELSE last /\ apart /\ badScales
      pool == IF m.ok THEN CloseAll(decode, m.pages, {m.rank})
              ELSE IF Guarded("every-handle-stopped") THEN decode
              ELSE CloseAll(decode, Fresh(m.request, attempts[m.request][m.attempt]), RankSet)
      marks == IF acts /\ ~own THEN strays \cup {Stray("message", m.request, m.attempt, r)} ELSE strays
  IN /\ IF ~attempts[r][a].registered      \* nobody is known by that name yet
        THEN net' = left /\ UNCHANGED <<decode, attempts, cache, queue, strays>>
        ELSE IF ~acts
        THEN decode' = pool /\ strays' = marks /\ net' = left /\ UNCHANGED <<attempts, cache, queue>>
        ELSE IF fails
        THEN Fail(pool, marks, attempt, r, a, left)
        ELSE IF asked /\ ~refused /\ last /\ ~apart
        THEN LET done == Commit([pool |-> pool, cache |-> cache], attempt, r, a)
             IN /\ decode' = done.pool /\ cache' = done.cache
                /\ attempts' = [attempts EXCEPT ![r][a] = done.attempt]
                /\ net' = left \cup done.sent
                /\ strays' = marks \cup done.marks /\ UNCHANGED queue
        ELSE /\ attempts' = [attempts EXCEPT ![r][a] = attempt]
             /\ decode' = pool /\ strays' = marks /\ net' = left
             /\ UNCHANGED <<cache, queue>>
     /\ UNCHANGED <<prefill, jobs, waiting, wire>>

ReceiveFailed(m, left) ==       \* prefill has ended the attempt: so does decode
  LET r == Live(m)[1]
      a == Live(m)[2]
      attempt == attempts[r][a]
      own == Live(m) = <<m.request, m.attempt>>
      acts == attempt.registered /\ attempt.ended = Nobody /\ ~attempt.committed /\ (own \/ ~ControlCarriesGeneration)
      marks == IF own THEN strays ELSE strays \cup {Stray("message", m.request, m.attempt, r)}
  IN /\ IF acts THEN Fail(decode, marks, attempt, r, a, left)
        ELSE net' = left /\ UNCHANGED <<decode, attempts, cache, queue, strays>>
     /\ UNCHANGED <<prefill, jobs, waiting, wire>>

(* Prefill posts no more; if all its writes succeeded, nothing of it can   *)
(* land any more.                                                          *)
ReceiveAck(m, left) ==
  /\ decode' = IF m.ok /\ attempts[Live(m)[1]][Live(m)[2]].registered THEN CloseAll(decode, m.pages, RankSet) ELSE decode
  /\ net' = left
  /\ UNCHANGED <<prefill, attempts, jobs, cache, queue, waiting, wire, strays>>

ReceiveHello(m, left) ==        \* another prefill has come: whoever was with the old one has nobody
  /\ decode' = IF Guarded("check-incarnation") THEN [decode EXCEPT !.epoch = m.attempt] ELSE decode
  /\ net' = left
  /\ UNCHANGED <<prefill, attempts, jobs, cache, queue, waiting, wire, strays>>
=============================================================================

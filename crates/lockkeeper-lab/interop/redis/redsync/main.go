// A peer that locks with redsync; the orders are told in src/interop/mod.rs.
//
// Its URL is redlock://host:port,host:port with ?fail_fast=true for the option of that name.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	driver "github.com/redis/go-redis/v9"
)

// The ttl of locks that are only measured.
const measured = 30 * time.Second

// How long one who waits goes on after the time is over.
const grace = 2 * time.Second

type peer struct {
	sync    *redsync.Redsync
	options []redsync.Option
	held    map[string]*redsync.Mutex
}

func main() {
	hosts, query, _ := strings.Cut(strings.TrimPrefix(os.Args[1], "redlock://"), "?")
	pools := []redis.Pool{}
	for _, host := range strings.Split(hosts, ",") {
		pools = append(pools, goredis.NewPool(driver.NewClient(&driver.Options{Addr: host})))
	}
	peer := peer{sync: redsync.New(pools...), held: map[string]*redsync.Mutex{}}
	if query == "fail_fast=true" {
		peer.options = append(peer.options, redsync.WithFailFast(true))
	}
	go func() {
		// A pipe that was closed ends a peer that waits for a lock, too.
		for os.Getppid() != 1 {
			time.Sleep(time.Second)
		}
		os.Exit(0)
	}()
	fmt.Println("ready")
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		words := strings.Fields(orders.Text())
		if len(words) == 0 || words[0] == "quit" {
			return
		}
		answer, err := peer.obey(words)
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
}

func (p *peer) obey(words []string) (string, error) {
	name := words[1]
	if words[0] == "unlock" {
		mutex, ok := p.held[name]
		if !ok {
			return "not-held", nil
		}
		delete(p.held, name)
		if ok, err := mutex.Unlock(); !ok {
			return "not-held", unless(err, taken)
		}
		return "unlocked", nil
	}
	if words[0] == "holds" {
		if mutex, ok := p.held[name]; ok && time.Now().Before(mutex.Until()) {
			return "holds", nil
		}
		return "lost", nil
	}
	number, err := strconv.Atoi(words[2])
	if err != nil {
		return "", err
	}
	switch words[0] {
	case "bench":
		began := time.Now()
		if _, err := p.turns(name, number, time.Time{}); err != nil {
			return "", err
		}
		return fmt.Sprint("took ", time.Since(began).Seconds()), nil
	case "turns":
		length, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return p.stamped(name, number, time.Duration(length)*time.Millisecond, len(words) > 4)
	case "wait":
		for range number {
			go p.wait(p.mutex(name, measured))
		}
		return "waiting", nil
	case "crowd":
		tasks, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		limit, err := strconv.Atoi(words[4])
		if err != nil {
			return "", err
		}
		return p.crowd(name, number, tasks, time.Duration(limit)*time.Millisecond)
	}
	mutex := p.mutex(name, time.Duration(number)*time.Millisecond)
	if words[0] == "lock" {
		err = p.wait(mutex)
	} else if err = mutex.TryLock(); err != nil {
		return "busy", unless(err, taken)
	}
	if err != nil {
		return "", err
	}
	p.held[name] = mutex
	return "held", nil
}

func (p *peer) mutex(name string, expiry time.Duration) *redsync.Mutex {
	options := append([]redsync.Option{redsync.WithExpiry(expiry)}, p.options...)
	return p.sync.NewMutex(name, options...)
}

// Lock gives up after some tries, which the others do not.
func (p *peer) wait(mutex *redsync.Mutex) error {
	for {
		err := mutex.Lock()
		if err == nil || !taken(err) {
			return err
		}
	}
}

// Takes the lock so often, or until then, and returns how long each wait was.
func (p *peer) turns(name string, count int, until time.Time) ([]time.Duration, error) {
	waits := make([]time.Duration, 0, count)
	for range count {
		if !until.IsZero() && time.Now().After(until) {
			break
		}
		began, mutex := time.Now(), p.mutex(name, measured)
		if err := p.wait(mutex); err != nil {
			return nil, err
		}
		waits = append(waits, time.Since(began))
		if ok, err := mutex.Unlock(); !ok {
			return nil, errors.Join(errors.New("it was lost"), err)
		}
	}
	return waits, nil
}

// Has several take it so often; tells how long that took, the longest wait, the mean, and how many had it.
func (p *peer) crowd(name string, count, tasks int, limit time.Duration) (string, error) {
	var group sync.WaitGroup
	all, failed := make([][]time.Duration, tasks), make([]error, tasks)
	began := time.Now()
	for task := range tasks {
		group.Go(func() { all[task], failed[task] = p.turns(name, count, began.Add(limit)) })
	}
	group.Wait()
	took, waits := time.Since(began), slices.Concat(all...)
	if err := errors.Join(failed...); err != nil {
		return "", err
	}
	sum := time.Duration(0)
	for _, wait := range waits {
		sum += wait
	}
	mean := sum.Seconds() / float64(len(waits))
	longest := slices.Max(waits).Seconds()
	return fmt.Sprintf("took %g %g %g %d", took.Seconds(), longest, mean, len(waits)), nil
}

// Tasks that take the lock, or each one of its own, for this long: when each asked, had the lock, gave it
// back and was done.
func (p *peer) stamped(name string, tasks int, length time.Duration, own bool) (string, error) {
	var group sync.WaitGroup
	end := time.Now().Add(length)
	all, failed := make([][]string, tasks), make([]error, tasks)
	for task := range tasks {
		name := name
		if own {
			name = fmt.Sprintf("%s/%d", name, task)
		}
		group.Go(func() { all[task], failed[task] = p.stamps(name, end) })
	}
	group.Wait()
	return strings.Join(append([]string{"turns"}, slices.Concat(all...)...), " "), errors.Join(failed...)
}

func (p *peer) stamps(name string, end time.Time) ([]string, error) {
	turns := []string{}
	until, cancel := context.WithDeadline(context.Background(), end.Add(grace))
	defer cancel()
	for time.Now().Before(end) {
		asked, mutex := now(), p.mutex(name, measured)
		for {
			err := mutex.LockContext(until)
			if err == nil {
				break
			}
			if until.Err() != nil {
				return turns, nil
			}
			if !taken(err) {
				return nil, err
			}
		}
		held := now()
		releasing := now()
		if ok, err := mutex.Unlock(); !ok {
			return nil, errors.Join(errors.New("it was lost"), err)
		}
		turns = append(turns, fmt.Sprintf("%d,%d,%d,%d", asked, held, releasing, now()))
	}
	return turns, nil
}

// Microseconds of a clock that all processes share.
func now() int64 {
	return time.Now().UnixMicro()
}

// Whether the only trouble is that others have the lock, or had it by then.
func taken(err error) bool {
	var all *redsync.ErrTaken
	var one *redsync.ErrNodeTaken
	var failed *redsync.RedisError
	if errors.As(err, &failed) {
		return false
	}
	return errors.As(err, &all) || errors.As(err, &one) ||
		errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.Is(err, redsync.ErrFailed)
}

func unless(err error, expected func(error) bool) error {
	if err == nil || expected(err) {
		return nil
	}
	return err
}
